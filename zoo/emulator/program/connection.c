// The socket to the emulator.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "stand_in.h"

static const uint64_t REFUSED = ~UINT64_C(0);
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int connection = -1;
static pid_t owner;

static _Noreturn void stop(const char *why)
{
    fflush(NULL);
    if (why != NULL) fprintf(stderr, "zoo emulate: %s\n", why);
    _exit(1);
}

static void begin(void)
{
    const char *path = getenv("ZOO_EMULATOR_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (path == NULL || strlen(path) >= sizeof address.sun_path) stop("this library is for programs that `zoo emulate` starts");
    strcpy(address.sun_path, path);
    connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection < 0 || connect(connection, (struct sockaddr *)&address, sizeof address) != 0) stop("the emulator does not answer");
    owner = getpid();
}

static void transfer(int sends, void *bytes, size_t size)
{
    while (size > 0) {
        ssize_t moved = sends ? send(connection, bytes, size, MSG_NOSIGNAL) : recv(connection, bytes, size, 0);
        if (moved < 0 && errno == EINTR) continue;
        if (moved <= 0) stop("the emulator has ended");
        bytes = (char *)bytes + moved;
        size -= (size_t)moved;
    }
}

void hold(void) { pthread_mutex_lock(&lock); }
void let_go(void) { pthread_mutex_unlock(&lock); }

struct message ask(struct message request, const void *bytes, void *room, size_t size)
{
    struct message answer;
    hold();
    if (connection < 0) begin();
    if (owner != getpid()) stop("a process that was forked after the first call of CUDA cannot use CUDA");
    transfer(1, &request, sizeof request);
    transfer(1, (void *)bytes, request.size);
    transfer(0, &answer, sizeof answer);
    size_t wanted = answer.size < size ? answer.size : size;
    transfer(0, room, wanted);
    for (size_t left = answer.size - wanted; left > 0;) {
        char dropped[256];
        size_t part = left < sizeof dropped ? left : sizeof dropped;
        transfer(0, dropped, part);
        left -= part;
    }
    let_go();
    if (answer.what == REFUSED) stop(NULL);  // the emulator says why
    return answer;
}

static struct message say(uint64_t what, const char *format, va_list values)
{
    char sentence[512];
    vsnprintf(sentence, sizeof sentence, format, values);
    return ask((struct message){what, strlen(sentence), {0}}, sentence, NULL, 0);
}

void refuse(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    say(REFUSE, format, values);
    stop(NULL);
}

void note(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    say(NOTE, format, values);
    va_end(values);
}
