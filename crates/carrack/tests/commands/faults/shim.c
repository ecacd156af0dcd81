/* Loaded in front of the C library: leads connections into the campaign's network, and lets the clock jump.
 *
 * CARRACK_FAULT_DIAL=LO-HI:TO   a connection to a port from LO to HI goes to 127.0.0.1, port TO and up
 * CARRACK_FAULT_CLOCK=FILE      nanoseconds (one int64_t) by which CLOCK_REALTIME is wrong; may change at any time
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static unsigned lo = 1, hi = 0, to = 0;
static const volatile int64_t *wrong_by_ns = NULL;

__attribute__((constructor)) static void begin(void) {
    const char *dial = getenv("CARRACK_FAULT_DIAL"), *clock = getenv("CARRACK_FAULT_CLOCK");
    if (dial && sscanf(dial, "%u-%u:%u", &lo, &hi, &to) != 3) abort();
    if (clock) {
        int file = open(clock, O_RDONLY | O_CLOEXEC);
        void *map = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
        if (map == MAP_FAILED) abort();
        close(file);
        wrong_by_ns = map;
    }
    /* Not for ssh and what else is started. */
    unsetenv("LD_PRELOAD");
}

static int lead(uint16_t *port) {
    unsigned number = ntohs(*port);
    if (number < lo || number > hi) return 0;
    *port = htons((uint16_t)(to + (number - lo)));
    return 1;
}

int connect(int socket, const struct sockaddr *address, socklen_t length) {
    struct sockaddr_storage led;
    static int (*next)(int, const struct sockaddr *, socklen_t) = NULL;
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "connect");
    if (address == NULL || length > sizeof led) return next(socket, address, length);
    memcpy(&led, address, length);
    if (led.ss_family == AF_INET) {
        struct sockaddr_in *four = (struct sockaddr_in *)&led;
        if (lead(&four->sin_port)) four->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else if (led.ss_family == AF_INET6) {
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)&led;
        if (lead(&six->sin6_port)) {
            inet_pton(AF_INET6, "::ffff:127.0.0.1", &six->sin6_addr);
            six->sin6_scope_id = 0;
        }
    }
    return next(socket, (struct sockaddr *)&led, length);
}

static void shift(struct timespec *now) {
    int64_t ns;
    if (!wrong_by_ns) return;
    ns = (int64_t)now->tv_sec * 1000000000 + now->tv_nsec + *wrong_by_ns;
    now->tv_sec = ns / 1000000000;
    now->tv_nsec = ns % 1000000000;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) shift(now);
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec fine;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &fine) != 0) return -1;
    now->tv_sec = fine.tv_sec;
    now->tv_usec = fine.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into) {
    struct timespec fine;
    if (clock_gettime(CLOCK_REALTIME, &fine) != 0) return -1;
    if (into) *into = fine.tv_sec;
    return fine.tv_sec;
}
