/* Reads a call as caller.c's head describes it. */
#ifndef READ_CALL_H
#define READ_CALL_H

#include "zoo.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ARGUMENTS = 64, MOST_DIMENSIONS = 16 };

typedef struct {
    int device, count;
    char kernel[256], mode[256];
    char names[MOST_ARGUMENTS][256], choices[MOST_ARGUMENTS][256];
    int64_t extents[MOST_ARGUMENTS][MOST_DIMENSIONS], strides[MOST_ARGUMENTS][MOST_DIMENSIONS];
    DLTensor tensors[MOST_ARGUMENTS];
    zoo_argument arguments[MOST_ARGUMENTS]; /* they point into the rest of it */
} call;

static int read_int(FILE* file) {
    int value;
    if (fscanf(file, "%d", &value) != 1) abort();
    return value;
}

static char* read_word(FILE* file, char* word) {
    if (fscanf(file, "%255s", word) != 1) abort();
    return word;
}

static int64_t read_number(FILE* file) {
    int64_t value;
    if (fscanf(file, "%" SCNd64, &value) != 1) abort();
    return value;
}

/* 0 at the end of the file. */
static int read_call(FILE* file, call* read) {
    char word[256];
    if (fscanf(file, "%255s", word) != 1) return 0;
    if (strcmp(word, "call")) abort();
    read->device = read_int(file);
    read_word(file, read->kernel);
    read_word(file, read->mode);
    read->count = read_int(file);
    for (int index = 0; index < read->count; index++) {
        const char* name = read->names[index];
        read_word(file, word);
        read_word(file, read->names[index]);
        if (!strcmp(word, "integer")) {
            read->arguments[index] = zoo_integer(name, read_number(file));
        } else if (!strcmp(word, "number")) {
            read->arguments[index] = zoo_number(name, strtod(read_word(file, word), NULL));
        } else if (!strcmp(word, "choice")) {
            read_word(file, read->choices[index]);
            read->arguments[index] = zoo_choice(name, strcmp(read->choices[index], "-") ? read->choices[index] : NULL);
        } else if (!strcmp(read_word(file, word), "null")) {
            read->arguments[index] = zoo_tensor(name, NULL);
        } else {
            DLTensor* tensor = &read->tensors[index];
            tensor->data = (void*)(uintptr_t)strtoull(word, NULL, 10);
            tensor->byte_offset = strtoull(read_word(file, word), NULL, 10);
            tensor->device.device_type = read_int(file);
            tensor->device.device_id = read_int(file);
            tensor->dtype.code = (uint8_t)read_int(file);
            tensor->dtype.bits = (uint8_t)read_int(file);
            tensor->dtype.lanes = (uint16_t)read_int(file);
            tensor->ndim = read_int(file);
            tensor->shape = tensor->ndim ? read->extents[index] : NULL;
            for (int axis = 0; axis < tensor->ndim; axis++) read->extents[index][axis] = read_number(file);
            tensor->strides = read_int(file) ? read->strides[index] : NULL;
            for (int axis = 0; axis < tensor->ndim && tensor->strides; axis++) read->strides[index][axis] = read_number(file);
            read->arguments[index] = zoo_tensor(name, tensor);
        }
    }
    return 1;
}

#endif
