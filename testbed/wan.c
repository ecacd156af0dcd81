/* A long fat pipe in user space, for kernels without netem: two tun devices, one in each of two network namespaces,
 * with IP packets carried between them after a delay, through a bottleneck with a drop-tail queue, with random loss.
 *
 *   wan NAMESPACE_A NAMESPACE_B DELAY_MS RATE_MBIT LOSS_PERCENT QUEUE_MB RATE_FILE
 *
 * DELAY_MS is one way. With SIGHUP it takes another rate from RATE_FILE, in Mbit/s. Prints "ready" when both ends are up (10.98.0.1/30 in A, 10.98.0.2/30 in B), then runs until it
 * is ended. One thread; a packet is kept in one ring slot until it is due.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { PACKET_BYTES = 2048, RING_PACKETS = 1 << 16, BATCH_PACKETS = 64 };

struct packet {
    uint64_t due_ns;
    uint32_t bytes;
    unsigned char data[PACKET_BYTES];
};

/* One direction. */
struct path {
    int from, to;
    struct packet *ring;
    uint64_t head, tail;
    uint64_t link_free_ns; /* when the bottleneck has sent what it holds */
};

struct settings {
    uint64_t delay_ns;
    double bytes_per_ns;
    double loss;
    double queue_bytes;
};

static volatile sig_atomic_t has_new_rate;

static void hear(int signal)
{
    (void)signal;
    has_new_rate = 1;
}

static double bytes_per_ns(double mbit)
{
    return mbit * 1e6 / 8 / 1e9;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* Goes into the namespace first: in the caller's own, another pipe's device could have the name just now. */
static int open_tun(const char *name, const char *namespace)
{
    struct ifreq request;
    char path[256];
    snprintf(path, sizeof path, "/run/netns/%s", namespace);
    int home = open(path, O_RDONLY | O_CLOEXEC);
    if (home < 0 || setns(home, CLONE_NEWNET))
        fail(path);
    close(home);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        fail("/dev/net/tun");
    memset(&request, 0, sizeof request);
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    if (ioctl(fd, TUNSETIFF, &request))
        fail("TUNSETIFF");
    return fd;
}

static void bring_up(const char *device, const char *namespace, const char *address)
{
    char command[512];
    snprintf(command, sizeof command,
             "ip -n %s addr add %s/30 dev %s && ip -n %s link set %s up txqueuelen 10000", namespace, address, device,
             namespace, device);
    if (system(command))
        fail(command);
}

/* Takes one packet from the path's sender; 0 when there is none. Lost and dropped ones are forgotten. */
static int accept_packet(struct path *path, const struct settings *set, uint64_t now)
{
    static unsigned char lost[PACKET_BYTES];
    int has_room = path->tail - path->head < RING_PACKETS;
    struct packet *slot = &path->ring[path->tail % RING_PACKETS];
    ssize_t bytes = read(path->from, has_room ? slot->data : lost, PACKET_BYTES);
    if (bytes <= 0)
        return 0;
    if (path->link_free_ns < now)
        path->link_free_ns = now;
    double waiting = (double)(path->link_free_ns - now) * set->bytes_per_ns;
    if (!has_room || drand48() < set->loss || waiting + (double)bytes > set->queue_bytes)
        return 1;
    path->link_free_ns += (uint64_t)((double)bytes / set->bytes_per_ns);
    slot->due_ns = path->link_free_ns + set->delay_ns;
    slot->bytes = (uint32_t)bytes;
    path->tail++;
    return 1;
}

/* Delivers what is due; returns when the next packet is. */
static uint64_t deliver(struct path *path, uint64_t now)
{
    while (path->head != path->tail) {
        struct packet *first = &path->ring[path->head % RING_PACKETS];
        if (first->due_ns > now)
            return first->due_ns;
        if (write(path->to, first->data, first->bytes) < 0 && errno == EAGAIN)
            return now + 100000;
        path->head++;
    }
    return UINT64_MAX;
}

/* What is no rate changes nothing. */
static void take_rate(const char *path, struct settings *set)
{
    double mbit;
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%lf", &mbit) == 1 && mbit > 0)
        set->bytes_per_ns = bytes_per_ns(mbit);
    if (file)
        fclose(file);
}

static void carry(struct path paths[2], struct settings *set, const char *rate_file)
{
    for (;;) {
        if (has_new_rate) {
            has_new_rate = 0;
            take_rate(rate_file, set);
        }
        uint64_t next = UINT64_MAX;
        int is_busy = 0;
        for (int i = 0; i < 2; i++) {
            uint64_t now = now_ns();
            for (int n = 0; n < BATCH_PACKETS && accept_packet(&paths[i], set, now); n++)
                is_busy = 1;
            uint64_t due = deliver(&paths[i], now_ns());
            next = due < next ? due : next;
        }
        if (is_busy)
            continue;
        uint64_t now = now_ns(), wait_ns = next == UINT64_MAX ? 100000000u : next > now ? next - now : 0;
        struct timespec timeout = {(time_t)(wait_ns / 1000000000u), (long)(wait_ns % 1000000000u)};
        struct pollfd fds[2] = {{.fd = paths[0].from, .events = POLLIN}, {.fd = paths[1].from, .events = POLLIN}};
        ppoll(fds, 2, &timeout, NULL);
    }
}

int main(int count, char **word)
{
    if (count != 8) {
        fprintf(stderr, "usage: wan NAMESPACE_A NAMESPACE_B DELAY_MS RATE_MBIT LOSS_PERCENT QUEUE_MB RATE_FILE\n");
        return 2;
    }
    signal(SIGHUP, hear);
    struct settings set = {
        .delay_ns = (uint64_t)(atof(word[3]) * 1e6),
        .bytes_per_ns = bytes_per_ns(atof(word[4])),
        .loss = atof(word[5]) / 100,
        .queue_bytes = atof(word[6]) * 1e6,
    };
    int a = open_tun("wanA", word[1]), b = open_tun("wanB", word[2]);
    bring_up("wanA", word[1], "10.98.0.1");
    bring_up("wanB", word[2], "10.98.0.2");
    struct path paths[2] = {{.from = a, .to = b}, {.from = b, .to = a}};
    for (int i = 0; i < 2; i++)
        if (!(paths[i].ring = calloc(RING_PACKETS, sizeof(struct packet))))
            fail("memory");
    puts("ready");
    fflush(stdout);
    carry(paths, &set, word[7]);
}
