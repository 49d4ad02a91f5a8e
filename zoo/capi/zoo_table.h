// clang-format Language: C
/* SPDX-License-Identifier: Apache-2.0
 *
 * What zoo.c knows of the exported kernels: the manifest's entries as static tables, written by zoo/capi/export.py.
 *
 * Expressions stand in a list for each kernel and are named by their index there; symbols, flags (`a.present`,
 * `layout.plain`) and tile constants by their slot in the kernel's list of names, where slot 0 is `sms`.
 */
#ifndef ZOO_TABLE_H
#define ZOO_TABLE_H

#include "zoo_contract.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ZOO_NONE = 0xFFFF, /* no such index */
    ZOO_ANY = 0xFF     /* whichever value the option has */
};

typedef struct {
    int64_t operand;
    uint32_t opcode;
} zoo_instruction; /* opcodes are ZOO_DO_... */

typedef struct {
    const char *text;
    const zoo_instruction *code;
    uint16_t length;
    uint16_t bare; /* the slot, where the whole expression is one name */
} zoo_expression;

typedef struct {
    uint16_t when;
    uint16_t dimensions;
    uint16_t shape[ZOO_MOST_DIMENSIONS];
    uint16_t contiguous; /* then `strides` means nothing */
    uint16_t strides[ZOO_MOST_DIMENSIONS];
} zoo_form;

typedef enum { ZOO_NO_DEFAULT, ZOO_INTEGER_DEFAULT, ZOO_NUMBER_DEFAULT } zoo_default;

typedef struct {
    const char *name, *help;
    const char *const *dtypes;
    const zoo_form *forms; /* NULL: a scalar */
    uint16_t dtype_count, form_count;
    uint16_t slot; /* a scalar's own; an array's `present`, followed by `itemsize` and a flag for each dtype */
    uint16_t optional;
    uint16_t may_be; /* the output that it may be, or ZOO_NONE */
    zoo_access access;
    int32_t alignment;
    zoo_default default_kind;
    int64_t default_integer;
    double default_number;
} zoo_argument_entry;

typedef struct {
    const char *name;
    const char *const *values;
    uint16_t count, chosen; /* `chosen` by default */
    uint16_t slot;          /* of the first value's flag */
} zoo_option_entry;

typedef struct {
    uint16_t slot, expression;
} zoo_derived;
typedef struct {
    uint16_t expression;
    const char *words;
} zoo_constraint;

/* dimensions innermost first; type, swizzle, promotion and fill are ZOO_MAP_..., ZOO_SWIZZLE_..., ZOO_PROMOTE_... and ZOO_FILL_... */
typedef struct {
    uint16_t rank;
    uint16_t dims[5], strides[4], box[5], steps[5];
    uint16_t type, swizzle, promotion, fill;
} zoo_map_recipe;

typedef struct {
    zoo_parameter_kind kind;
    uint16_t offset, size;
    uint16_t argument;   /* of a pointer, f32 or tensor map */
    uint16_t expression; /* of an i32 or i64 */
    const zoo_map_recipe *map;
} zoo_parameter;

typedef struct {
    uint16_t grid[3], cluster[3], alone;
    uint16_t programmatic;
    uint16_t parameter_count, parameter_bytes;
    const zoo_parameter *parameters;
} zoo_launch_rule;

typedef struct {
    uint16_t slot;
    int64_t value;
} zoo_constant;

/* What was measured on an H200, and what zoo/contract/chips.py makes of it on another chip. */
typedef struct {
    uint16_t slot;
    int64_t value, tensor;
    zoo_rate rate;
} zoo_cost_number;

typedef struct {
    const char *name, *symbol;
    uint16_t arch; /* index into the kernel's archs */
    uint16_t launch, when, cost;
    uint16_t cubin;
    uint16_t threads;
    uint32_t shared, static_shared; /* in bytes; the former dynamic */
    uint16_t constant_count, number_count;
    const zoo_constant *constants;
    const zoo_cost_number *numbers; /* those of the manifest; a device or a file of costs may have others */
    const uint8_t *dtypes;          /* an index for each argument that has several */
    const uint8_t *options;         /* an index for each option, ZOO_ANY where it is not compiled */
} zoo_variant;

typedef struct {
    const char *name, *summary;
    const char *const *names; /* of the slots */
    const zoo_expression *expressions;
    const zoo_argument_entry *arguments;
    const zoo_option_entry *options;
    const zoo_derived *derived;
    const zoo_constraint *constraints;
    const zoo_launch_rule *launches;
    const zoo_variant *variants;
    const char *const *archs;
    uint16_t name_count, argument_count, option_count, derived_count, constraint_count, variant_count, arch_count;
    uint16_t first_variant; /* of all kernels' */
} zoo_kernel;

typedef struct {
    const char *file;
    const unsigned char *data;
    uint32_t bytes;
    unsigned char sha256[32];
} zoo_cubin;

extern const zoo_kernel zoo_kernels[];
extern const int zoo_kernels_count, zoo_variants_count;
extern const zoo_cubin zoo_cubins[];
extern const int zoo_cubins_count;

#ifdef __cplusplus
}
#endif
#endif
