// The disks of `testbed/disks`: files that answer as slowly as a disk would.
//
//   disks RATES FILE...      RATES is a file with a line for each FILE: its bytes per second, 0 for as fast as possible
//
// Each FILE is mounted over itself by FUSE; a loop device on it then is a disk. A disk has one server: requests wait in
// one queue, reads and writes, whoever sends them, first come, first served; each takes its bytes ÷ the rate. No
// cache, no seeks, no credit for idle time. Says "ready" when all are mounted. Ends when all are unmounted.
//
// Protocol: linux/fuse.h. One thread for each disk, which sleeps for what the disk would have worked.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
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

enum {
    REQUEST_BYTES = 1 << 20,
    HEADERS_BYTES = 4096, // room for what stands before a write's bytes
    RATE_LINE_BYTES = 16, // decimal digits, padded with spaces, and a newline
    BACKGROUND = 128,     // requests that the kernel hands out at a time: a queue with no end, for a loop device
};

struct disk {
    int index, fuse, image;
    int64_t free_ns; // when it has done all that it has taken
    char request[HEADERS_BYTES + REQUEST_BYTES];
    char answer[REQUEST_BYTES];
};

static int rates;

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

// Begins when the one before has ended. Who comes to an idle disk begins now; the small grace is this program's own delay.
static void work(struct disk *d, uint32_t bytes)
{
    const int64_t grace_ns = 1000000, now = now_ns(), rate = rate_of(d);
    if (rate <= 0)
        return;
    if (d->free_ns < now - grace_ns)
        d->free_ns = now;
    d->free_ns += (int64_t)bytes * 1000000000LL / rate;
    struct timespec until = {d->free_ns / 1000000000LL, d->free_ns % 1000000000LL};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
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

static void read_some(struct disk *d, uint64_t unique, const struct fuse_read_in *in)
{
    const uint32_t wanted = in->size < REQUEST_BYTES ? in->size : REQUEST_BYTES;
    const ssize_t count = pread(d->image, d->answer, wanted, in->offset);
    const int error = count < 0 ? errno : 0;
    work(d, wanted);
    answer(d, unique, error, d->answer, count < 0 ? 0 : count);
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
    const int error = count < 0 ? errno : 0;
    work(d, in->size);
    struct fuse_write_out out = {.size = count < 0 ? 0 : count};
    answer(d, unique, error, &out, error ? 0 : sizeof out);
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

static void *run(void *argument)
{
    struct disk *d = argument;
    for (;;) {
        if (read(d->fuse, d->request, sizeof d->request) > 0)
            serve(d);
        else if (errno == ENODEV) // unmounted
            return NULL;
        else if (errno != EINTR && errno != EAGAIN && errno != ENOENT)
            die("disks: /dev/fuse");
    }
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
    char options[100];
    snprintf(options, sizeof options, "fd=%d,rootmode=100600,user_id=0,group_id=0", d->fuse);
    if (mount("carrack-disk", path, "fuse", MS_NOSUID | MS_NODEV, options) != 0)
        die(path);
    return d;
}

int main(int count, char **words)
{
    if (count < 3)
        return fprintf(stderr, "usage: disks RATES FILE...\n"), 2;
    rates = open(words[1], O_RDONLY | O_CLOEXEC);
    if (rates < 0)
        die(words[1]);
    pthread_t threads[count];
    for (int i = 2; i < count; i++)
        if (pthread_create(&threads[i], NULL, run, disk(i - 2, words[i])) != 0)
            die("disks: thread");
    puts("ready");
    fflush(stdout);
    for (int i = 2; i < count; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
