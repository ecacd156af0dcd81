// The disks of `testbed/disks`: files that answer as slowly as a disk would.
//
//   disks RATES [--spindle AHEAD,CHUNK,DATA,QUEUE] FILE...
//
// RATES is a file with a line for each FILE: its bytes per second, 0 for as fast as possible. Each FILE is mounted over
// itself by FUSE; a loop device on it then is a disk. Says "ready" when all are mounted. Ends when all are unmounted.
//
// A disk has one server: requests wait in one queue, reads and writes, whoever sends them, first come, first served; each
// takes its bytes ÷ the rate. No cache, no seeks, no credit for idle time.
//
// With --spindle it is a disk that seeks, as spindle.h says, in slow motion: the rate is what it moves without seeks, and
// seeks and turns are as much slower as the rate is below that of the modelled disk, so that every ratio stays.
//
// Protocol: linux/fuse.h. One thread for each disk, which sleeps for what the disk would have worked.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "spindle.h"

enum {
    REQUEST_BYTES = 1 << 20,
    HEADERS_BYTES = 4096, // room for what stands before a write's bytes
    RATE_LINE_BYTES = 16, // decimal digits, padded with spaces, and a newline
    BACKGROUND = 128,     // requests that the kernel hands out at a time: a queue with no end, for a loop device
};

struct disk {
    int index, fuse, image;
    int64_t free_ns; // when it has done all that it has taken
    struct spindle *spindle;
    double model_ns; // what the spindle's clock shows at free_ns
    struct spindle_request waiting[SPINDLE_QUEUE_MOST];
    int waiting_count;
    char request[HEADERS_BYTES + REQUEST_BYTES];
    char answer[REQUEST_BYTES];
};

static int rates;
static struct spindle_setup setup; // of every disk, but for its size; queue 0: no spindles

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

// Read again for every request, so that a new rate holds at once.
static int64_t rate_of(const struct disk *d)
{
    char line[RATE_LINE_BYTES + 1] = "";
    if (pread(rates, line, RATE_LINE_BYTES, (off_t)d->index * RATE_LINE_BYTES) <= 0)
        return 0;
    return atoll(line);
}

// Work begins when the one before has ended. Who comes to an idle disk begins now; the small grace is this program's own
// delay. How long the disk was idle.
static int64_t begin(struct disk *d)
{
    const int64_t grace_ns = 1000000, now = now_ns(), idle_ns = now - d->free_ns;
    if (idle_ns <= grace_ns)
        return 0;
    d->free_ns = now;
    return idle_ns;
}

static void sleep_until_free(const struct disk *d)
{
    struct timespec until = {d->free_ns / 1000000000LL, d->free_ns % 1000000000LL};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

static void work(struct disk *d, uint32_t bytes)
{
    const int64_t rate = rate_of(d);
    if (rate <= 0)
        return;
    begin(d);
    d->free_ns += (int64_t)bytes * 1000000000LL / rate;
    sleep_until_free(d);
}

static void answer(struct disk *d, uint64_t unique, int error, const void *body, size_t bytes)
{
    struct fuse_out_header head = {.len = sizeof head + bytes, .error = -error, .unique = unique};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)body, bytes}};
    if (writev(d->fuse, parts, 2) < 0 && errno != ENOENT && errno != ENODEV)
        perror("disks: answer");
}

static void init(struct disk *d, uint64_t unique, const struct fuse_init_in *in)
{
    struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION};
    out.max_readahead = in->max_readahead;
    out.flags = in->flags & (FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_MAX_PAGES | FUSE_ASYNC_DIO);
    out.max_background = BACKGROUND;
    out.congestion_threshold = BACKGROUND;
    out.max_write = REQUEST_BYTES;
    out.max_pages = REQUEST_BYTES / 4096;
    out.time_gran = 1;
    answer(d, unique, 0, &out, sizeof out);
}

static void attributes(struct disk *d, uint64_t unique)
{
    struct stat s;
    if (fstat(d->image, &s) != 0) {
        answer(d, unique, errno, NULL, 0);
        return;
    }
    struct fuse_attr_out out = {.attr_valid = 3600};
    out.attr.ino = FUSE_ROOT_ID;
    out.attr.size = s.st_size;
    out.attr.blocks = s.st_blocks;
    out.attr.mode = S_IFREG | 0600;
    out.attr.nlink = 1;
    out.attr.blksize = 4096;
    answer(d, unique, 0, &out, sizeof out);
}

// A loop device takes the block size for that of its discards, and has none without.
static void room(struct disk *d, uint64_t unique)
{
    struct fuse_statfs_out out = {.st = {.bsize = 4096, .frsize = 4096, .namelen = 255}};
    answer(d, unique, 0, &out, sizeof out);
}

static void answer_read(struct disk *d, uint64_t unique, int64_t offset, uint32_t wanted)
{
    const ssize_t count = pread(d->image, d->answer, wanted, offset);
    answer(d, unique, count < 0 ? errno : 0, d->answer, count < 0 ? 0 : count);
}

static void answer_write(struct disk *d, uint64_t unique, uint32_t count)
{
    struct fuse_write_out out = {.size = count};
    answer(d, unique, 0, &out, sizeof out);
}

// Whether the request has to wait for the disk's head: what is written is stored by then, but not answered.
static int waits(struct disk *d, uint64_t unique, int64_t offset, uint32_t bytes, int is_write)
{
    if (!d->spindle || rate_of(d) <= 0)
        return 0;
    d->waiting[d->waiting_count++] =
        (struct spindle_request){.id = unique, .offset = offset, .bytes = bytes, .is_write = is_write};
    return 1;
}

static void read_some(struct disk *d, uint64_t unique, const struct fuse_read_in *in)
{
    const uint32_t wanted = in->size < REQUEST_BYTES ? in->size : REQUEST_BYTES;
    if (waits(d, unique, in->offset, wanted, 0))
        return;
    if (!d->spindle)
        work(d, wanted);
    answer_read(d, unique, in->offset, wanted);
}

static const int HOLE = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

static int is_zero(const char *bytes, size_t count)
{
    return count > 0 && bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0;
}

// Zeros become a hole: a new file system's log is full of them, and would take memory.
static ssize_t store(const struct disk *d, const char *bytes, uint32_t count, uint64_t offset)
{
    if (is_zero(bytes, count) && fallocate(d->image, HOLE, offset, count) == 0)
        return count;
    return pwrite(d->image, bytes, count, offset);
}

static void write_some(struct disk *d, uint64_t unique, const struct fuse_write_in *in)
{
    const ssize_t count = store(d, (const char *)(in + 1), in->size, in->offset);
    if (count < 0) {
        answer(d, unique, errno, NULL, 0);
        return;
    }
    if (waits(d, unique, in->offset, count, 1))
        return;
    if (!d->spindle)
        work(d, in->size);
    answer_write(d, unique, count);
}

// The request that the disk takes next. The model's clock goes on with the real one, as much slower as the disk is.
static struct spindle_request start_next(struct disk *d)
{
    const int64_t rate = rate_of(d);
    const double slower = rate > 0 ? spindle_rate(&setup) / rate : 0;
    const int64_t idle_ns = begin(d);
    if (slower > 0)
        d->model_ns += idle_ns / slower;
    const int next = spindle_pick(d->spindle, d->waiting, d->waiting_count, d->model_ns);
    const struct spindle_request r = d->waiting[next];
    d->waiting_count--;
    memmove(&d->waiting[next], &d->waiting[next + 1], (d->waiting_count - next) * sizeof r);
    const double done_ns = spindle_serve(d->spindle, &r, d->model_ns);
    d->free_ns += (int64_t)((done_ns - d->model_ns) * slower);
    d->model_ns = done_ns;
    return r;
}

static void answer_waited(struct disk *d, const struct spindle_request *r)
{
    if (r->is_write)
        answer_write(d, r->id, r->bytes);
    else
        answer_read(d, r->id, r->offset, r->bytes);
}

// Discarded and zeroed blocks go back to memory; that takes a disk no time.
static void discard(struct disk *d, uint64_t unique, const struct fuse_fallocate_in *in)
{
    answer(d, unique, fallocate(d->image, HOLE, in->offset, in->length) ? errno : 0, NULL, 0);
}

static void serve(struct disk *d)
{
    const struct fuse_in_header *head = (void *)d->request;
    const void *body = head + 1;
    switch (head->opcode) {
    case FUSE_INIT: init(d, head->unique, body); break;
    case FUSE_GETATTR: attributes(d, head->unique); break;
    case FUSE_STATFS: room(d, head->unique); break;
    case FUSE_OPEN: {
        // Every read comes here, also a buffered one.
        struct fuse_open_out out = {.open_flags = FOPEN_DIRECT_IO};
        answer(d, head->unique, 0, &out, sizeof out);
        break;
    }
    case FUSE_READ: read_some(d, head->unique, body); break;
    case FUSE_WRITE: write_some(d, head->unique, body); break;
    case FUSE_FALLOCATE: discard(d, head->unique, body); break;
    case FUSE_FLUSH: case FUSE_FSYNC: case FUSE_RELEASE: answer(d, head->unique, 0, NULL, 0); break;
    case FUSE_FORGET: case FUSE_BATCH_FORGET: case FUSE_INTERRUPT: break; // are not answered
    default: answer(d, head->unique, ENOSYS, NULL, 0);
    }
}

static int has_request(const struct disk *d)
{
    struct pollfd wanted = {.fd = d->fuse, .events = POLLIN};
    return poll(&wanted, 1, 0) > 0;
}

// Takes a request from the kernel, which keeps what the drive's own queue has no room for, in order.
static int take(struct disk *d)
{
    if (read(d->fuse, d->request, sizeof d->request) > 0)
        serve(d);
    else if (errno == ENODEV) // unmounted
        return 0;
    else if (errno != EINTR && errno != EAGAIN && errno != ENOENT)
        die("disks: /dev/fuse");
    return 1;
}

// What the drive's own queue has room for.
static int take_more(struct disk *d)
{
    while (d->waiting_count < setup.queue && has_request(d))
        if (!take(d))
            return 0;
    return 1;
}

// A drive goes on to the next request when one is done. Who asks again after each answer comes too late for that: so the
// answer is given after the choice, or the sender's speed, and what the machine has else to do, would decide.
static int work_off(struct disk *d)
{
    struct spindle_request done = {0};
    while (d->waiting_count > 0) {
        const struct spindle_request next = start_next(d);
        if (done.bytes > 0)
            answer_waited(d, &done);
        sleep_until_free(d);
        done = next;
        if (!take_more(d))
            return 0;
    }
    if (done.bytes > 0)
        answer_waited(d, &done);
    return 1;
}

static void *run(void *argument)
{
    struct disk *d = argument;
    while (take(d) && take_more(d) && work_off(d))
        ;
    return NULL;
}

static struct spindle *spindle(int image)
{
    struct stat s;
    struct spindle *made = calloc(1, sizeof *made);
    if (!made || fstat(image, &s) != 0)
        die("disks: spindle");
    struct spindle_setup own = setup;
    own.bytes = s.st_size;
    spindle_init(made, &own);
    return made;
}

static struct disk *disk(int index, const char *path)
{
    struct disk *d = calloc(1, sizeof *d);
    if (!d)
        die("disks: memory");
    d->index = index;
    d->image = open(path, O_RDWR | O_CLOEXEC);
    d->fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (d->image < 0 || d->fuse < 0)
        die(d->image < 0 ? path : "/dev/fuse");
    if (setup.queue > 0)
        d->spindle = spindle(d->image);
    char options[100];
    snprintf(options, sizeof options, "fd=%d,rootmode=100600,user_id=0,group_id=0", d->fuse);
    if (mount("carrack-disk", path, "fuse", MS_NOSUID | MS_NODEV, options) != 0)
        die(path);
    return d;
}

static int take_setup(const char *words)
{
    return sscanf(words, "%" SCNd64 ",%" SCNd64 ",%d,%d", &setup.ahead_bytes, &setup.chunk_bytes, &setup.data_disks,
                  &setup.queue) == 4 &&
           setup.ahead_bytes >= 0 && setup.chunk_bytes > 0 && setup.data_disks > 0 && setup.queue > 0 &&
           setup.queue <= SPINDLE_QUEUE_MOST;
}

int main(int count, char **words)
{
    int first = 2;
    if (count > 3 && strcmp(words[2], "--spindle") == 0)
        first = take_setup(words[3]) ? 4 : count;
    if (count <= first)
        return fprintf(stderr, "usage: disks RATES [--spindle AHEAD,CHUNK,DATA,QUEUE] FILE...\n"), 2;
    rates = open(words[1], O_RDONLY | O_CLOEXEC);
    if (rates < 0)
        die(words[1]);
    pthread_t threads[count];
    for (int i = first; i < count; i++)
        if (pthread_create(&threads[i], NULL, run, disk(i - first, words[i])) != 0)
            die("disks: thread");
    puts("ready");
    fflush(stdout);
    for (int i = first; i < count; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
