/* What no caller can bring about: a fork while another thread holds one of the library's locks, and a digest of which one byte is wrong.
   It is compiled with zoo.c, as inside.h. */
#include "inside.h"

#include <sys/wait.h>

static pthread_mutex_t *held;
static int told[2];

static void *hold(void *unused)
{
    char word = 0;
    pthread_mutex_lock(held);
    if (write(told[1], &word, 1) != 1) abort();
    for (;;) pause();
    return unused;
}

/* A digest is held against all 32 bytes. */
static int try_digests(void)
{
    int refused = 0;
    zoo_cubin cubin = zoo_cubins[0];
    printf("whole: %s\n", zoo_status_name(check_cubin(&cubin)));
    for (size_t index = 0; index < sizeof cubin.sha256; index++) {
        zoo_cubin altered = cubin;
        altered.sha256[index] ^= 1;
        refused += check_cubin(&altered) == ZOO_INTEGRITY_ERROR;
    }
    printf("refused: %d\n", refused);
    return 0;
}

/* A line for each chip of the standard input: what costs read of it, and what two numbers become on it. */
static int try_chips(void)
{
    device_state device = {0};
    long long clock, memory_clock, memory_bits, value, tensor;
    while (scanf(" %127[^@]@%d@%lld@%lld@%lld@%lld@%lld", device.name, &device.multiprocessors, &clock, &memory_clock, &memory_bits, &value,
                 &tensor) == 7) {
        chip found = chip_of(&device, clock, memory_clock, memory_bits);
        printf("%lld %lld", (long long)found.tensor, (long long)found.memory);
        for (int rate = ZOO_RATE_NONE; rate <= ZOO_RATE_TENSOR; rate++) {
            zoo_cost_number number = {0, value, tensor, (zoo_rate)rate};
            printf(" %lld", (long long)number_on(found, &number));
        }
        putchar('\n');
    }
    return 0;
}

int main(int count, char **words)
{
    zoo_device *device;
    pthread_t thread;
    char word;
    int status;
    if (count == 2 && !strcmp(words[1], "digests")) return try_digests();
    if (count == 2 && !strcmp(words[1], "chips")) return try_chips();
    if (count != 2 || zoo_open_arch("sm_90a", 132, &device) || pipe(told)) return 2;
    held = !strcmp(words[1], "handles") ? &handles_lock : &process_lock;
    if (pthread_create(&thread, NULL, hold, NULL) || read(told[0], &word, 1) != 1) return 2;
    pid_t child = fork();
    if (child == 0) {
        alarm(10); /* a child that waits for the lock */
        zoo_device *other;
        status = zoo_open_arch("sm_90a", 132, &other);
        puts(zoo_status_name((zoo_status)status));
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
    printf("child: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    return 0;
}
