// Looks at running carrack processes again and again; says at the end where their threads ran and where their slots lay.
//
//   witness RECORDS INTERVAL_MS [frames]     until SIGTERM; then writes RECORDS, one JSON object a line:
//
//   {"process":PID,"command":"..."}
//   {"thread":TID,"process":PID,"name":"carrack-read","allowed":"0-1","cpus":[0,1],"samples":20,"ticks":7}
//       one for each list of CPUs that a thread was allowed; `cpus`: where it last ran when it was looked at;
//       `ticks` (1/100 s): what it has worked under this list for sure, that is, between two looks at it, or before the first
//   {"pool":"7f..","process":PID,"policy":"bind:0-1","bytes":N,"pages":[[2048,0,0,0],...],"frames":[[FIRST,COUNT],...]}
//       a large mapping that is locked in memory, as slots are; `pages`: 4 KiB pages on each node, once for each different answer
//       of the kernel; `frames`: its physical pages, all that were seen
//   {"node":0,"numa_miss":0,"numa_foreign":0,"other_node":12}     what the counters grew by meanwhile
//
// Sources: proc(5) stat fields 14, 15 and 39, status Cpus_allowed_list; the kernel's numa_memory_policy, numastat, pagemap documents.

#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    PROCESSES = 64,
    THREADS = 4096, // a thread under two lists is two
    POOLS = 64,
    ANSWERS = 64, // different distributions of one pool's pages
    NODES = 16,
    CPUS = 64,
    FRAMES = 1 << 20, // physical pages of 4 KiB: 4 GiB
    PAGE_BYTES = 4096,
    POOL_BYTES_MIN = 1 << 20, // what else is locked is small
    LOOKS_PER_MEMORY = 4,     // memory is looked at less often than threads: the kernel takes long over it
    TEXT = 4096,
};

struct process {
    int pid;
    char command[TEXT];
};

struct thread {
    int pid, tid;
    char name[64], allowed[256];
    uint64_t cpus; // one bit each
    unsigned long samples, ticks;
    unsigned long total_ticks, look; // of the thread, when last seen; which look that was
};

struct pool {
    int pid;
    unsigned long start, end;
    char policy[128];
    int answer_count;
    long answers[ANSWERS][NODES];
    unsigned char *frames; // one bit each
};

static struct process processes[PROCESSES];
static struct thread threads[THREADS];
static struct pool pools[POOLS];
static int process_count, thread_count, pool_count;
static volatile sig_atomic_t ended;
static FILE *out;

static void end(int signal)
{
    (void)signal;
    ended = 1;
}

static void give_up(const char *what)
{
    fprintf(stderr, "witness: too many %s\n", what);
    exit(1);
}

// The whole of a small file of /proc or /sys; empty where it is gone.
static char *slurp(const char *path, char *text, size_t size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, text, size - 1);
    if (file >= 0)
        close(file);
    text[length > 0 ? length : 0] = 0;
    return text;
}

static int is_number(const char *name)
{
    return isdigit((unsigned char)*name);
}

// --- threads ----------------------------------------------------------------------------------------

static void allowed_list(const char *directory, char *allowed, size_t size)
{
    char path[PATH_MAX], text[TEXT];
    snprintf(path, sizeof path, "%s/status", directory);
    char *found = strstr(slurp(path, text, sizeof text), "Cpus_allowed_list:\t");
    snprintf(allowed, size, "%.*s", found ? (int)strcspn(found + 19, "\n") : 0, found ? found + 19 : "");
}

static struct thread *thread_under(int pid, int tid, const char *allowed)
{
    for (int i = 0; i < thread_count; i++)
        if (threads[i].pid == pid && threads[i].tid == tid && !strcmp(threads[i].allowed, allowed))
            return &threads[i];
    if (thread_count == THREADS)
        give_up("threads");
    struct thread *t = &threads[thread_count++];
    t->pid = pid;
    t->tid = tid;
    snprintf(t->allowed, sizeof t->allowed, "%s", allowed);
    return t;
}

// How it was seen last.
static struct thread *last_of(int pid, int tid)
{
    struct thread *last = NULL;
    for (int i = 0; i < thread_count; i++)
        if (threads[i].pid == pid && threads[i].tid == tid && (!last || threads[i].look > last->look))
            last = &threads[i];
    return last;
}

static void add_work(struct thread *t, const struct thread *last, unsigned long total_ticks)
{
    static unsigned long looks;
    if (!last)
        t->ticks = total_ticks;
    else if (last == t)
        t->ticks += total_ticks - t->total_ticks;
    t->total_ticks = total_ticks;
    t->look = ++looks;
}

// What stands at field N of stat, counted as in proc(5), after the name (field 2), which may hold anything.
static const char *field(const char *after_name, int n)
{
    for (int at = 2; at < n && after_name; at++) {
        after_name = strchr(after_name, ' ');
        after_name = after_name ? after_name + 1 : NULL;
    }
    return after_name ? after_name : "0";
}

// Counts only if the list was the same before and after, and at the look before this one, and the thread has run since: else the
// CPU may belong to another list. The kernel changes the list first and moves the thread then; one that sleeps is moved when it wakes.
static void look_at_thread(int pid, int tid)
{
    char directory[PATH_MAX], path[PATH_MAX + 8], stat[TEXT], before[256], after[256];
    snprintf(directory, sizeof directory, "/proc/%d/task/%d", pid, tid);
    allowed_list(directory, before, sizeof before);
    snprintf(path, sizeof path, "%s/stat", directory);
    char *close = strrchr(slurp(path, stat, sizeof stat), ')'), *open = strchr(stat, '(');
    allowed_list(directory, after, sizeof after);
    if (!close || !open || !*before || strcmp(before, after))
        return;
    const struct thread *last = last_of(pid, tid);
    struct thread *t = thread_under(pid, tid, before);
    snprintf(t->name, sizeof t->name, "%.*s", (int)(close - open - 1), open + 1);
    unsigned long ticks = strtoul(field(close, 14), NULL, 10) + strtoul(field(close, 15), NULL, 10);
    if (last && !strcmp(last->allowed, before) && ticks > last->total_ticks)
        t->cpus |= 1ULL << (atoi(field(close, 39)) % CPUS);
    add_work(t, last, ticks);
    t->samples++;
}

// --- slots ------------------------------------------------------------------------------------------

static struct pool *pool_at(int pid, unsigned long start, unsigned long end)
{
    for (int i = 0; i < pool_count; i++)
        if (pools[i].pid == pid && pools[i].start == start && pools[i].end == end)
            return &pools[i];
    if (pool_count == POOLS)
        give_up("pools");
    struct pool *p = &pools[pool_count++];
    *p = (struct pool){.pid = pid, .start = start, .end = end, .frames = calloc(FRAMES / 8, 1)};
    return p;
}

// Finds the locked anonymous mappings (`lo` among the flags).
static void look_for_pools(int pid)
{
    char path[PATH_MAX], line[TEXT];
    unsigned long start = 0, end = 0, inode = 1, from, to, number;
    snprintf(path, sizeof path, "/proc/%d/smaps", pid);
    FILE *smaps = fopen(path, "re");
    while (smaps && fgets(line, sizeof line, smaps)) {
        if (sscanf(line, "%lx-%lx %*s %*x %*s %lu", &from, &to, &number) == 3)
            start = from, end = to, inode = number;
        else if (!strncmp(line, "VmFlags:", 8) && strstr(line, " lo") && inode == 0 && end - start >= POOL_BYTES_MIN)
            pool_at(pid, start, end);
    }
    if (smaps)
        fclose(smaps);
}

static void add_answer(struct pool *p, const long *pages)
{
    for (int i = 0; i < p->answer_count; i++)
        if (!memcmp(p->answers[i], pages, sizeof p->answers[i]))
            return;
    // A pool that fills up gives many answers: the last one is kept, then.
    int at = p->answer_count < ANSWERS ? p->answer_count++ : ANSWERS - 1;
    memcpy(p->answers[at], pages, sizeof p->answers[at]);
}

// One line of numa_maps: ADDRESS POLICY [name=COUNT]... N0=PAGES N1=PAGES ... kernelpagesize_kB=4
static void read_numa_line(struct pool *p, char *line)
{
    long pages[NODES] = {0}, kilobytes = 4;
    char *word = strtok(line, " \n");
    word = strtok(NULL, " \n");
    if (!word)
        return;
    snprintf(p->policy, sizeof p->policy, "%s", word);
    while ((word = strtok(NULL, " \n"))) {
        int node;
        long count;
        if (sscanf(word, "N%d=%ld", &node, &count) == 2 && node < NODES)
            pages[node] = count;
        sscanf(word, "kernelpagesize_kB=%ld", &kilobytes);
    }
    for (int i = 0; i < NODES; i++)
        pages[i] = pages[i] * kilobytes / 4;
    add_answer(p, pages);
}

static void look_at_numa_maps(int pid)
{
    char path[PATH_MAX], line[TEXT];
    snprintf(path, sizeof path, "/proc/%d/numa_maps", pid);
    FILE *maps = fopen(path, "re");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start = strtoul(line, NULL, 16);
        for (int i = 0; i < pool_count; i++)
            if (pools[i].pid == pid && pools[i].start == start)
                read_numa_line(&pools[i], line);
    }
    if (maps)
        fclose(maps);
}

// pagemap: 64 bits a page, bit 63 present, bits 0 to 54 the frame.
static void look_at_frames(struct pool *p)
{
    static uint64_t entries[16384];
    char path[PATH_MAX];
    snprintf(path, sizeof path, "/proc/%d/pagemap", p->pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    unsigned long page = p->start / PAGE_BYTES, last = p->end / PAGE_BYTES;
    while (file >= 0 && page < last) {
        size_t want = last - page < 16384 ? last - page : 16384;
        ssize_t got = pread(file, entries, want * 8, page * 8);
        for (ssize_t i = 0; i < got / 8; i++) {
            uint64_t frame = entries[i] & ((1ULL << 55) - 1);
            if (entries[i] >> 63 && frame && frame < FRAMES)
                p->frames[frame / 8] |= 1 << frame % 8;
        }
        if (got <= 0)
            break;
        page += got / 8;
    }
    if (file >= 0)
        close(file);
}

// --- processes --------------------------------------------------------------------------------------

static int is_carrack(int pid)
{
    char path[PATH_MAX], program[PATH_MAX];
    snprintf(path, sizeof path, "/proc/%d/exe", pid);
    ssize_t length = readlink(path, program, sizeof program - 1);
    if (length <= 0)
        return 0;
    program[length] = 0;
    return !strcmp(strrchr(program, '/') + 1, "carrack");
}

static void know_process(int pid)
{
    for (int i = 0; i < process_count; i++)
        if (processes[i].pid == pid)
            return;
    if (process_count == PROCESSES)
        give_up("processes");
    struct process *p = &processes[process_count++];
    char path[PATH_MAX];
    p->pid = pid;
    snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, p->command, sizeof p->command - 1);
    for (ssize_t i = 0; i < length; i++) // words end with zeros; quotes would end the JSON
        if (p->command[i] < ' ' || p->command[i] == '"' || p->command[i] == '\\')
            p->command[i] = ' ';
    if (file >= 0)
        close(file);
}

static void look_at_threads(int pid)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *tasks = opendir(path);
    for (struct dirent *entry; tasks && (entry = readdir(tasks));)
        if (is_number(entry->d_name))
            look_at_thread(pid, atoi(entry->d_name));
    if (tasks)
        closedir(tasks);
}

static void look_at_memory(int pid, int with_frames)
{
    look_for_pools(pid);
    if (!with_frames)
        look_at_numa_maps(pid);
    for (int i = 0; with_frames && i < pool_count; i++)
        if (pools[i].pid == pid)
            look_at_frames(&pools[i]);
}

// With `with_frames` the threads and numa_maps are left alone: looking costs the kernel memory accesses, too.
static void look(int with_frames)
{
    static unsigned looks;
    int at_memory = with_frames || looks++ % LOOKS_PER_MEMORY == 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; proc && (entry = readdir(proc));) {
        int pid = atoi(entry->d_name);
        if (!is_number(entry->d_name) || !is_carrack(pid))
            continue;
        know_process(pid);
        if (!with_frames)
            look_at_threads(pid);
        if (at_memory)
            look_at_memory(pid, with_frames);
    }
    if (proc)
        closedir(proc);
}

// --- nodes ------------------------------------------------------------------------------------------

static const char *const counters[] = {"numa_miss", "numa_foreign", "other_node"};
enum { COUNTERS = sizeof counters / sizeof *counters };

static int read_counters(int node, long *values)
{
    char path[PATH_MAX], text[TEXT];
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/numastat", node);
    slurp(path, text, sizeof text);
    for (int i = 0; i < COUNTERS; i++) {
        char *found = strstr(text, counters[i]);
        values[i] = found ? strtol(found + strlen(counters[i]), NULL, 10) : 0;
    }
    return *text != 0;
}

// --- what is told -----------------------------------------------------------------------------------

static void tell_thread(const struct thread *t)
{
    const char *comma = "";
    fprintf(out, "{\"thread\":%d,\"process\":%d,\"name\":\"%s\",\"allowed\":\"%s\",\"cpus\":[", t->tid, t->pid, t->name,
            t->allowed);
    for (int cpu = 0; cpu < CPUS; cpu++)
        if (t->cpus >> cpu & 1) {
            fprintf(out, "%s%d", comma, cpu);
            comma = ",";
        }
    fprintf(out, "],\"samples\":%lu,\"ticks\":%lu}\n", t->samples, t->ticks);
}

static void tell_frames(const struct pool *p)
{
    const char *comma = "";
    fprintf(out, ",\"frames\":[");
    for (unsigned frame = 0; frame < FRAMES; frame++) {
        unsigned first = frame;
        while (frame < FRAMES && p->frames[frame / 8] >> frame % 8 & 1)
            frame++;
        if (frame > first) {
            fprintf(out, "%s[%u,%u]", comma, first, frame - first);
            comma = ",";
        }
    }
    fputc(']', out);
}

static void tell_pool(const struct pool *p, int nodes, int with_frames)
{
    fprintf(out, "{\"pool\":\"%lx\",\"process\":%d,\"policy\":\"%s\",\"bytes\":%lu,\"pages\":[", p->start, p->pid,
            p->policy, p->end - p->start);
    for (int i = 0; i < p->answer_count; i++)
        for (int node = 0; node < nodes; node++)
            fprintf(out, "%s%ld%s", node ? "," : i ? ",[" : "[", p->answers[i][node], node + 1 == nodes ? "]" : "");
    fputc(']', out);
    if (with_frames)
        tell_frames(p);
    fprintf(out, "}\n");
}

static void tell(long (*before)[COUNTERS], int nodes, int with_frames)
{
    for (int i = 0; i < process_count; i++)
        fprintf(out, "{\"process\":%d,\"command\":\"%s\"}\n", processes[i].pid, processes[i].command);
    for (int i = 0; i < thread_count; i++)
        tell_thread(&threads[i]);
    for (int i = 0; i < pool_count; i++)
        tell_pool(&pools[i], nodes, with_frames);
    for (int node = 0; node < nodes; node++) {
        long now[COUNTERS];
        read_counters(node, now);
        fprintf(out, "{\"node\":%d", node);
        for (int i = 0; i < COUNTERS; i++)
            fprintf(out, ",\"%s\":%ld", counters[i], now[i] - before[node][i]);
        fprintf(out, "}\n");
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: witness RECORDS INTERVAL_MS [frames]\n");
        return 2;
    }
    int with_frames = argc > 3, nodes = 0;
    long interval_ms = atol(argv[2]), before[NODES][COUNTERS];
    while (nodes < NODES && read_counters(nodes, before[nodes]))
        nodes++;
    if (!(out = fopen(argv[1], "we"))) {
        perror(argv[1]);
        return 1;
    }
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = end}, NULL);
    while (!ended) {
        look(with_frames);
        nanosleep(&(struct timespec){.tv_sec = interval_ms / 1000, .tv_nsec = interval_ms % 1000 * 1000000}, NULL);
    }
    tell(before, nodes, with_frames);
    return fclose(out) != 0;
}
