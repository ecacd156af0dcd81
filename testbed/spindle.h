// A spinning disk, or a RAID group of equal ones, in model time: what each request costs, and which one is next.
//
// No clock, no threads, no I/O: `disks.c` sleeps for what is computed here, `spindle-trial.c` only counts it. Times are
// nanoseconds of the drive that is modelled, whatever rate a slower double of it is given.
//
// A request costs its transfer, at the rate of the medium, and before that, unless it goes on where the head is or lies in
// the drive's buffer, a seek and what the platter then takes to turn to its first byte.
//
// The drive: Seagate Savvio 10K.4 SAS, 600 GB (ST9600204SS), product manual 100539221 rev. A, sections 4.1 and 4.2: a
// disk of the kind that the LADS paper's storage targets are made of (section 4.1: 10,000 rpm SAS, one for each target).
// The curve between its three seek times is the root and the line of Ruemmler and Wilkes, "An introduction to disk drive
// modeling" (IEEE Computer 27(3), 1994) in one piece, so that seeks between random places take the manual's average.

#ifndef CARRACK_SPINDLE_H
#define CARRACK_SPINDLE_H

#include <stdint.h>

enum {
    SPINDLE_SEGMENTS = 32,  // of the drive's buffer: streams that it can look ahead for
    SPINDLE_QUEUE_MOST = 64 // requests that a drive can choose from; SATA's command queue has 32
};

// What can be chosen. The drive's own figures are constants in spindle.c.
struct spindle_setup {
    int64_t bytes;       // of the whole disk or group
    int64_t ahead_bytes; // a drive reads on by this much, for a stream that it knows; 0: never
    int64_t chunk_bytes; // of the RAID group: what lies on one drive before the next
    int data_disks;      // that share the bytes, without parity; 1: no RAID
    int queue;           // requests that the drive chooses from; 1: first come, first served
};

struct spindle_request {
    uint64_t id;
    int64_t offset, bytes;
    int overtaken; // by how many later ones; 0 at first
    int is_write;
};

// What one stream has in the drive's buffer: read, or being read.
struct spindle_segment {
    int64_t start, end;
    double from_ns; // when the byte at `start` passed the head
    uint64_t used;  // the last use, counted: the oldest segment goes; 0: there is none
};

struct spindle {
    struct spindle_setup setup;
    struct spindle_segment segments[SPINDLE_SEGMENTS];
    int streaming;   // the segment that the head is reading into; -1: none
    int64_t head;    // where the head is when it is free
    double free_ns;  // when that is: reads done, look-ahead too
    uint64_t served; // counts requests
};

// What the modelled drive or group moves when it never seeks, in bytes per second.
double spindle_rate(const struct spindle_setup *setup);

void spindle_init(struct spindle *s, const struct spindle_setup *setup);

// Which of the waiting requests, in the order they came, is next at `now_ns`; counts whom it overtakes.
int spindle_pick(const struct spindle *s, struct spindle_request *waiting, int count, double now_ns);

// Serves a request that nobody is before any more; when its last byte has passed.
double spindle_serve(struct spindle *s, const struct spindle_request *request, double now_ns);

#endif
