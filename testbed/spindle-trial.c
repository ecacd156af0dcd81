// Runs streams on the model of spindle.h, without sleeping, and prints what they got.
//
//   spindle-trial WORD=NUMBER...     streams, request (bytes), depth, seconds, gap_us, size, ahead, queue, data, chunk,
//                                    write=1, random=1
//
// Each stream has a region of its own and always `depth` requests under way, one after the other in its region, or at random
// places of the whole disk; it asks again `gap_us` after an answer. Prints one line: MB/s of all, of the slowest and of
// the fastest stream, requests per second, and the rate without seeks.

#include "spindle.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAMS_MOST = 256, REQUESTS_MOST = 1024 };

struct options {
    long long streams, request, depth, seconds, gap_us, size, ahead, queue, data, chunk, write, random;
};

struct waiting {
    struct spindle_request requests[REQUESTS_MOST];
    double from_ns[REQUESTS_MOST]; // when it comes
    int count;
};

static const struct {
    const char *word;
    size_t place;
} WORDS[] = {
#define WORD(name) {#name, offsetof(struct options, name)}
    WORD(streams), WORD(request), WORD(depth), WORD(seconds), WORD(gap_us), WORD(size),
    WORD(ahead),   WORD(queue),   WORD(data),  WORD(chunk),   WORD(write),  WORD(random),
};

static int take(struct options *o, const char *argument)
{
    const char *number = strchr(argument, '=');
    for (size_t i = 0; number && i < sizeof WORDS / sizeof *WORDS; i++)
        if (strlen(WORDS[i].word) == (size_t)(number - argument) && strncmp(WORDS[i].word, argument, number - argument) == 0) {
            *(long long *)((char *)o + WORDS[i].place) = atoll(number + 1);
            return 1;
        }
    return 0;
}

static uint64_t seed = 88172645463325252ULL;

// xorshift: the same places on every machine.
static uint64_t chance(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

static int64_t next_offset(const struct options *o, int64_t *at, int stream)
{
    const int64_t region = o->size / o->streams / o->request * o->request;
    if (o->random)
        return (int64_t)(chance() % (uint64_t)(o->size / o->request)) * o->request;
    const int64_t offset = stream * region + *at % region;
    *at += o->request;
    return offset;
}

static void ask(const struct options *o, struct waiting *w, int64_t *at, int stream, double from_ns)
{
    const struct spindle_request r = {
        .id = stream, .offset = next_offset(o, at, stream), .bytes = o->request, .is_write = o->write != 0};
    int place = w->count++;
    for (; place > 0 && w->from_ns[place - 1] > from_ns; place--) {
        w->requests[place] = w->requests[place - 1];
        w->from_ns[place] = w->from_ns[place - 1];
    }
    w->requests[place] = r;
    w->from_ns[place] = from_ns;
}

static void drop(struct waiting *w, int place)
{
    w->count--;
    memmove(&w->requests[place], &w->requests[place + 1], (w->count - place) * sizeof *w->requests);
    memmove(&w->from_ns[place], &w->from_ns[place + 1], (w->count - place) * sizeof *w->from_ns);
}

static int is_possible(const struct options *o)
{
    return o->streams >= 1 && o->streams <= STREAMS_MOST && o->depth >= 1 && o->streams * o->depth <= REQUESTS_MOST &&
           o->request >= 512 && o->size / o->streams >= o->request && o->seconds >= 1 && o->data >= 1 && o->chunk >= 512 &&
           o->ahead >= 0 && o->queue >= 1 && o->queue <= SPINDLE_QUEUE_MOST;
}

int main(int count, char **words)
{
    struct options o = {.streams = 1, .request = 1 << 20, .depth = 1, .seconds = 60, .gap_us = 100, .size = 512LL << 20, .ahead = 512 << 10,
                        .queue = 32, .data = 1, .chunk = 128 << 10};
    for (int i = 1; i < count; i++)
        if (!take(&o, words[i]))
            return fprintf(stderr, "spindle-trial: what is %s?\n", words[i]), 2;
    if (!is_possible(&o))
        return fprintf(stderr, "spindle-trial: a number is out of range\n"), 2;
    const struct spindle_setup setup = {.bytes = o.size, .ahead_bytes = o.ahead, .chunk_bytes = o.chunk,
                                        .data_disks = (int)o.data, .queue = (int)o.queue};
    static struct spindle disk;
    static struct waiting w;
    int64_t at[STREAMS_MOST] = {0}, got[STREAMS_MOST] = {0}, requests = 0;
    spindle_init(&disk, &setup);
    for (int stream = 0; stream < o.streams; stream++)
        for (int i = 0; i < o.depth; i++)
            ask(&o, &w, &at[stream], stream, 0);
    double now_ns = 0;
    const double end_ns = (double)o.seconds * 1e9;
    while (now_ns < end_ns) {
        if (w.from_ns[0] > now_ns)
            now_ns = w.from_ns[0];
        int here = 0;
        while (here < w.count && w.from_ns[here] <= now_ns)
            here++;
        const int place = spindle_pick(&disk, w.requests, here, now_ns);
        const struct spindle_request r = w.requests[place];
        drop(&w, place);
        now_ns = spindle_serve(&disk, &r, now_ns);
        got[r.id] += r.bytes;
        requests++;
        ask(&o, &w, &at[r.id], (int)r.id, now_ns + (double)o.gap_us * 1e3);
    }
    int64_t all = 0, least = got[0], most = got[0];
    for (int i = 0; i < o.streams; i++) {
        all += got[i];
        least = got[i] < least ? got[i] : least;
        most = got[i] > most ? got[i] : most;
    }
    printf("%.2f %.2f %.2f %.1f %.2f\n", all / now_ns * 1e3, least / now_ns * 1e3, most / now_ns * 1e3,
           requests / now_ns * 1e9, spindle_rate(&setup) / 1e6);
    return 0;
}
