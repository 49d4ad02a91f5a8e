// Streams, events, captured streams and graphs.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "stand_in.h"

// A graph is made of what was enqueued while it was open. It is kept until the program ends.
struct graph {
    int open;
    struct stream *origin;
    struct operation *first, **end;
};
struct stream {
    unsigned flags;
    int priority;
    struct graph *graph;  // the last that captured it
};
struct event {
    unsigned flags;
    int recorded;
    double milliseconds;
    struct graph *graph;
};
static const unsigned NO_TIMING = 2;

static struct stream *stream_of(struct stream *stream)
{
    static struct stream usual;
    return (uintptr_t)stream <= 2 ? &usual : stream;  // 1 and 2 are the legacy and the thread's default stream
}

static struct graph *capturing(struct stream *stream)
{
    struct graph *graph = stream_of(stream)->graph;
    return graph != NULL && graph->open ? graph : NULL;
}

static int perform(const struct operation *operation)
{
    switch (operation->kind) {
    case COPIES: return copy(operation->to, operation->from, operation->size);
    case FILLS: return fill(operation->to, operation->value, operation->size, operation->count);
    case LAUNCHES: return run(&operation->launch);
    case CALLS: operation->function(operation->data); return SUCCESS;
    }
    return INVALID_VALUE;
}

int enqueue(struct stream *stream, struct operation operation)
{
    struct graph *graph = capturing(stream);
    if (graph == NULL) return perform(&operation);
    struct operation *kept = malloc(sizeof *kept);
    *kept = operation;
    if (operation.kind == LAUNCHES) {
        void *parameters = malloc(operation.launch.function->bytes + 1);
        memcpy(parameters, operation.launch.parameters, operation.launch.function->bytes);
        kept->launch.parameters = parameters;
    }
    *graph->end = kept;
    graph->end = &kept->next;
    return SUCCESS;
}

// ---- streams
EXPORT int cudaStreamCreateWithPriority(struct stream **stream, unsigned flags, int priority)
{
    *stream = calloc(1, sizeof **stream);
    (*stream)->flags = flags;
    (*stream)->priority = priority;
    return done(SUCCESS);
}
SAME(cuStreamCreateWithPriority, cudaStreamCreateWithPriority);

EXPORT int cudaStreamCreateWithFlags(struct stream **stream, unsigned flags) { return cudaStreamCreateWithPriority(stream, flags, 0); }
SAME(cuStreamCreate, cudaStreamCreateWithFlags);
EXPORT int cudaStreamCreate(struct stream **stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

EXPORT int cudaStreamDestroy(struct stream *stream)
{
    if ((uintptr_t)stream <= 2) return done(INVALID_HANDLE);
    free(stream);
    return done(SUCCESS);
}
SAME(cuStreamDestroy_v2, cudaStreamDestroy);

EXPORT int cudaStreamSynchronize(struct stream *stream) { return done(capturing(stream) ? CAPTURE_UNSUPPORTED : SUCCESS); }
SAME(cudaStreamQuery, cudaStreamSynchronize);
SAME(cuStreamSynchronize, cudaStreamSynchronize);
SAME(cuStreamQuery, cudaStreamSynchronize);

EXPORT int cudaStreamGetFlags(struct stream *stream, unsigned *flags)
{
    *flags = stream_of(stream)->flags;
    return done(SUCCESS);
}
EXPORT int cudaStreamGetPriority(struct stream *stream, int *priority)
{
    *priority = stream_of(stream)->priority;
    return done(SUCCESS);
}

EXPORT int cudaLaunchHostFunc(struct stream *stream, void (*function)(void *), void *data)
{ return done(enqueue(stream, (struct operation){.kind = CALLS, .function = function, .data = data})); }
SAME(cuLaunchHostFunc, cudaLaunchHostFunc);

// ---- events
EXPORT int cudaEventCreateWithFlags(struct event **event, unsigned flags)
{
    *event = calloc(1, sizeof **event);
    (*event)->flags = flags;
    return done(SUCCESS);
}
SAME(cuEventCreate, cudaEventCreateWithFlags);
EXPORT int cudaEventCreate(struct event **event) { return cudaEventCreateWithFlags(event, 0); }

EXPORT int cudaEventDestroy(struct event *event)
{
    free(event);
    return done(SUCCESS);
}
SAME(cuEventDestroy_v2, cudaEventDestroy);

EXPORT int cudaEventRecordWithFlags(struct event *event, struct stream *stream, unsigned flags)
{
    (void)flags;
    if (event == NULL) return done(INVALID_HANDLE);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    event->milliseconds = now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
    event->recorded = 1;
    event->graph = capturing(stream);
    return done(SUCCESS);
}
SAME(cuEventRecordWithFlags, cudaEventRecordWithFlags);
EXPORT int cudaEventRecord(struct event *event, struct stream *stream) { return cudaEventRecordWithFlags(event, stream, 0); }
SAME(cuEventRecord, cudaEventRecord);

EXPORT int cudaEventSynchronize(struct event *event)
{
    if (event == NULL) return done(INVALID_HANDLE);
    return done(event->graph && event->graph->open ? CAPTURE_UNSUPPORTED : SUCCESS);
}
SAME(cudaEventQuery, cudaEventSynchronize);
SAME(cuEventSynchronize, cudaEventSynchronize);
SAME(cuEventQuery, cudaEventSynchronize);

EXPORT int cudaEventElapsedTime(float *milliseconds, struct event *start, struct event *end)
{
    if (!start || !end || !start->recorded || !end->recorded || (start->flags | end->flags) & NO_TIMING) return done(INVALID_HANDLE);
    *milliseconds = (float)(end->milliseconds - start->milliseconds);
    return done(SUCCESS);
}
SAME(cuEventElapsedTime, cudaEventElapsedTime);
SAME(cuEventElapsedTime_v2, cudaEventElapsedTime);

EXPORT int cudaStreamWaitEvent(struct stream *stream, struct event *event, unsigned flags)
{
    (void)flags;
    if (event == NULL) return done(INVALID_HANDLE);
    if (event->graph && event->graph->open) stream_of(stream)->graph = event->graph;  // the stream is captured, too
    return done(SUCCESS);
}
SAME(cuStreamWaitEvent, cudaStreamWaitEvent);

// ---- graphs
EXPORT int cudaStreamBeginCapture(struct stream *stream, int mode)
{
    (void)mode;
    if ((uintptr_t)stream <= 2) return done(CAPTURE_UNSUPPORTED);
    if (capturing(stream)) return done(INVALID_VALUE);
    struct graph *graph = calloc(1, sizeof *graph);
    graph->open = 1;
    graph->origin = stream;
    graph->end = &graph->first;
    stream->graph = graph;
    return done(SUCCESS);
}
SAME(cuStreamBeginCapture_v2, cudaStreamBeginCapture);

EXPORT int cudaStreamEndCapture(struct stream *stream, struct graph **graph)
{
    *graph = capturing(stream);
    if (*graph == NULL || (*graph)->origin != stream) return done(INVALID_VALUE);
    (*graph)->open = 0;
    return done(SUCCESS);
}
SAME(cuStreamEndCapture, cudaStreamEndCapture);

EXPORT int cudaStreamIsCapturing(struct stream *stream, int *status)
{
    *status = capturing(stream) != NULL;
    return done(SUCCESS);
}
SAME(cuStreamIsCapturing, cudaStreamIsCapturing);

EXPORT int cudaGraphInstantiate(struct graph **executable, struct graph *graph, unsigned long long flags)
{
    (void)flags;
    *executable = graph;
    return done(graph == NULL ? INVALID_VALUE : SUCCESS);
}
SAME(cudaGraphInstantiateWithFlags, cudaGraphInstantiate);
SAME(cuGraphInstantiateWithFlags, cudaGraphInstantiate);

EXPORT int cudaGraphLaunch(struct graph *executable, struct stream *stream)
{
    if (executable == NULL || capturing(stream)) return done(INVALID_VALUE);
    int error = SUCCESS;
    for (struct operation *one = executable->first; one != NULL && !error; one = one->next) error = perform(one);
    return done(error);
}
SAME(cuGraphLaunch, cudaGraphLaunch);

EXPORT int cudaGraphDestroy(struct graph *graph)
{
    (void)graph;
    return done(SUCCESS);
}
SAME(cudaGraphExecDestroy, cudaGraphDestroy);
SAME(cuGraphDestroy, cudaGraphDestroy);
SAME(cuGraphExecDestroy, cudaGraphDestroy);

EXPORT int cudaGraphUpload(struct graph *executable, struct stream *stream)
{
    (void)executable, (void)stream;
    return done(SUCCESS);
}
