// The model of spindle.h.

#include "spindle.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// The data sheet's figures (spindle.h says which). Track: bytes on an average one. A stream changes tracks once in a turn.
static const double TURN_NS = 6e6;           // 10,000 rpm
static const double TRACK_BYTES = 677557;    // average
static const double SEEK_TRACK_NS = 0.30e6;  // to the next track
static const double SEEK_AVERAGE_NS = 3.8e6; // between random places
static const double SEEK_FULL_NS = 7.81e6;   // over all tracks
static const double WRITE_SETTLE_NS = 0.6e6; // a write's average seek is 4.4 ms: the head has to settle better

// Not of the data sheet: small enough that an image of some hundred MiB has many.
static const double ZONE_BYTES = 4 << 20;
// The same as `fifo_batch` of the kernel's deadline elevator. A request waits for so many later ones
// at most, or a stream that always has its next request in the queue would keep the disk for itself.
enum { OVERTAKEN_MOST = 16 };

// Bytes that pass in a turn of a sequential transfer, the change of track counted: places on neighbouring tracks are
// skewed by as much, so that nothing waits for a whole turn.
static double turn_bytes(void) { return TRACK_BYTES * TURN_NS / (TURN_NS + SEEK_TRACK_NS); }

static double drive_rate(void) { return turn_bytes() * 1e9 / TURN_NS; }

double spindle_rate(const struct spindle_setup *setup) { return drive_rate() * setup->data_disks; }

// Drives of the group that hold a part of some bytes.
static int drives_of(const struct spindle_setup *setup, int64_t bytes)
{
    const int64_t chunks = (bytes + setup->chunk_bytes - 1) / setup->chunk_bytes;
    return chunks < setup->data_disks ? (int)(chunks > 0 ? chunks : 1) : setup->data_disks;
}

// A stream's bytes, of which all drives of a group have a part; some begin with the next request while others end this one.
static double transfer_ns(const struct spindle_setup *setup, int64_t bytes)
{
    return (double)bytes / setup->data_disks / drive_rate() * 1e9;
}

// Bytes for which the heads had to come: they are there when the drive with the most of them has read them.
static double first_transfer_ns(const struct spindle_setup *setup, int64_t bytes)
{
    const int64_t chunks = (bytes + setup->chunk_bytes - 1) / setup->chunk_bytes;
    const int64_t most = (chunks + setup->data_disks - 1) / setup->data_disks * setup->chunk_bytes;
    return (double)(most < bytes ? most : bytes) / drive_rate() * 1e9;
}

// The root and the line through the three seek times; `distance` is a share of all tracks. Over random pairs a root has the
// mean 8/15 and a line 1/3, which gives the two factors.
static double seek_ns(double distance)
{
    if (distance <= 0)
        return 0;
    const double root = 5 * (SEEK_AVERAGE_NS - SEEK_TRACK_NS) - 5.0 / 3.0 * (SEEK_FULL_NS - SEEK_TRACK_NS);
    const double line = SEEK_FULL_NS - SEEK_TRACK_NS - root;
    return SEEK_TRACK_NS + root * sqrt(distance) + line * distance;
}

static double part(double x) { return x - floor(x); }

// Where on its track a byte lies, in turns. Tracks of a zone are alike, but not those of different zones: without that,
// streams whose places are a multiple of a track apart would always find each other's bytes under the head.
static double angle(const struct spindle_setup *setup, int64_t offset)
{
    const double on_drive = (double)offset / setup->data_disks;
    uint64_t mixed = (uint64_t)(on_drive / ZONE_BYTES) + 0x9E3779B97F4A7C15ULL;
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9ULL;
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBULL;
    return on_drive / turn_bytes() + (double)((mixed ^ mixed >> 31) >> 11) * 0x1p-53;
}

// Until the slowest drive of the group has its first byte under the head. Their platters do not turn in step: each is the
// golden section of a turn before the next.
static double turn_ns(const struct spindle_setup *setup, int64_t offset, int drives, double now_ns)
{
    const double place = angle(setup, offset);
    double most = 0;
    for (int drive = 0; drive < drives; drive++) {
        const double wait = part(place - now_ns / TURN_NS - drive * 0.618033988749895);
        most = wait > most ? wait : most;
    }
    return most * TURN_NS;
}

// From the head's place to a request's first byte. What goes on where the head is costs nothing, also when it comes late: a
// read was looked ahead for, a write's predecessor is in the drive's buffer.
static double position_ns(const struct spindle *s, const struct spindle_request *r, int64_t offset, double now_ns)
{
    if (offset == s->head)
        return 0;
    const double distance = (double)llabs((long long)(offset - s->head)) / (double)s->setup.bytes;
    const double seek = seek_ns(distance) + (r->is_write ? WRITE_SETTLE_NS : 0);
    return seek + turn_ns(&s->setup, offset, drives_of(&s->setup, r->bytes), now_ns + seek);
}

// From the first byte under the head to the last.
static double moved_ns(const struct spindle *s, int64_t offset, int64_t bytes)
{
    return offset == s->head ? transfer_ns(&s->setup, bytes) : first_transfer_ns(&s->setup, bytes);
}

// The segment that has a request's first byte, or ends just before it: of a stream that the drive knows.
static int segment_of(const struct spindle *s, const struct spindle_request *r)
{
    for (int i = 0; i < SPINDLE_SEGMENTS; i++) {
        const struct spindle_segment *g = &s->segments[i];
        if (g->used > 0 && g->start <= r->offset && r->offset <= g->end)
            return i;
    }
    return -1;
}

static int lies_in(const struct spindle_segment *g, const struct spindle_request *r)
{
    return g->start <= r->offset && r->offset + r->bytes <= g->end;
}

static double later(double a, double b) { return a > b ? a : b; }

// What a request would wait before its first byte moves: what is chosen by.
static double cost_ns(const struct spindle *s, const struct spindle_request *r, double now_ns)
{
    const int i = r->is_write ? -1 : segment_of(s, r);
    if (i >= 0 && lies_in(&s->segments[i], r))
        return 0;
    const int64_t offset = i >= 0 ? s->segments[i].end : r->offset;
    const double start_ns = later(now_ns, s->free_ns);
    return start_ns - now_ns + position_ns(s, r, offset, start_ns);
}

int spindle_pick(const struct spindle *s, struct spindle_request *waiting, int count, double now_ns)
{
    const int choice = count < s->setup.queue ? count : s->setup.queue;
    int best = 0;
    if (waiting[0].overtaken < OVERTAKEN_MOST) {
        double least = cost_ns(s, &waiting[0], now_ns);
        for (int i = 1; i < choice; i++) {
            const double cost = cost_ns(s, &waiting[i], now_ns);
            if (cost < least) {
                least = cost;
                best = i;
            }
        }
    }
    for (int i = 0; i < best; i++)
        waiting[i].overtaken++;
    return best;
}

// The oldest, or one that is none.
static int oldest(const struct spindle *s)
{
    int found = 0;
    for (int i = 1; i < SPINDLE_SEGMENTS; i++)
        if (s->segments[i].used < s->segments[found].used)
            found = i;
    return found;
}

// The head, which is at the segment's end, goes on to `end`, for a stream that will ask for it.
static void look_ahead(struct spindle *s, struct spindle_segment *g, int64_t end, double now_ns)
{
    if (end > s->setup.bytes)
        end = s->setup.bytes;
    if (end <= g->end)
        return;
    const double start_ns = later(now_ns, s->free_ns);
    g->from_ns = start_ns - transfer_ns(&s->setup, g->end - g->start);
    s->free_ns = start_ns + transfer_ns(&s->setup, end - g->end);
    s->head = g->end = end;
}

// What was answered leaves the buffer: 32 streams have half a MiB each in the 16 MB of the drive.
static void forget(struct spindle *s, struct spindle_segment *g, int64_t start)
{
    if (start <= g->start)
        return;
    g->from_ns += transfer_ns(&s->setup, start - g->start);
    g->start = start;
}

static double read_ahead_of(const struct spindle *s, const struct spindle_segment *g, int64_t end, double now_ns)
{
    return later(now_ns, g->from_ns + transfer_ns(&s->setup, end - g->start));
}

// From the head's place through what the segment lacks.
static double read_rest(struct spindle *s, struct spindle_segment *g, const struct spindle_request *r, double now_ns)
{
    const int64_t end = r->offset + r->bytes;
    const double start_ns = later(now_ns, s->free_ns);
    const double first_ns = start_ns + position_ns(s, r, g->end, start_ns);
    g->from_ns = first_ns - transfer_ns(&s->setup, g->end - g->start);
    s->free_ns = first_ns + moved_ns(s, g->end, end - g->end);
    s->head = g->end = end;
    return s->free_ns;
}

static double read_some(struct spindle *s, const struct spindle_request *r, double now_ns)
{
    const int64_t end = r->offset + r->bytes, ahead = s->setup.ahead_bytes * s->setup.data_disks;
    const int found = segment_of(s, r), i = found >= 0 ? found : oldest(s);
    struct spindle_segment *g = &s->segments[i];
    if (found < 0)
        *g = (struct spindle_segment){.start = r->offset, .end = r->offset};
    g->used = s->served;
    double done_ns;
    if (lies_in(g, r)) {
        done_ns = read_ahead_of(s, g, end, now_ns);
    } else {
        done_ns = read_rest(s, g, r, now_ns);
        s->streaming = i;
    }
    if (found >= 0 && ahead > 0 && s->streaming == i)
        look_ahead(s, g, end + ahead, now_ns);
    forget(s, g, end);
    return done_ns;
}

static double write_some(struct spindle *s, const struct spindle_request *r, double now_ns)
{
    for (int i = 0; i < SPINDLE_SEGMENTS; i++) {
        struct spindle_segment *g = &s->segments[i];
        if (r->offset < g->end && g->start < r->offset + r->bytes)
            g->used = 0;
    }
    const double start_ns = later(now_ns, s->free_ns);
    s->free_ns = start_ns + position_ns(s, r, r->offset, start_ns) + moved_ns(s, r->offset, r->bytes);
    s->head = r->offset + r->bytes;
    s->streaming = -1;
    return s->free_ns;
}

double spindle_serve(struct spindle *s, const struct spindle_request *r, double now_ns)
{
    s->served++;
    return r->is_write ? write_some(s, r, now_ns) : read_some(s, r, now_ns);
}

void spindle_init(struct spindle *s, const struct spindle_setup *setup)
{
    memset(s, 0, sizeof *s);
    s->setup = *setup;
    s->streaming = -1;
}
