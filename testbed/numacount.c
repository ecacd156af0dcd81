// A plugin for QEMU (7 or newer) that counts the bytes which each virtual CPU loads from and stores to each page of memory.
//
//   -plugin libnumacount.so,out=PREFIX,nodes=N,node_bytes=B[,cache_kib=K][,bulk=FIRST-LAST[:FIRST-LAST]...]
//
// The guest says when, with an instruction that does nothing (testbed/guest.d/mark.c): 0f 1f 80 and four bytes,
// MARK_START or MARK_STOP. Between the two all accesses of all CPUs are counted, the kernel's included; instruction fetches,
// what the CPU does by itself (page tables) and what devices do are not. Each stop writes PREFIX.0, PREFIX.1, ...:
//
//   offset  bytes
//   0       4       page: physical address ÷ 4096
//   4       4       CPU
//   8       8 × 12  by programs: bytes loaded, stored, fetched, written; the same by the kernel's bulk routines; by the
//                   rest of the kernel
//
// little-endian, one record for each page and CPU with an access. Bulk routines are those that copy, clear and sum;
// bulk= has their first and last addresses in hexadecimal. All nodes have node_bytes of memory, one behind the other.
//
// Loaded and stored is what instructions ask for. Fetched and written is what passes a cache of cache_kib (default 1024) that each
// CPU has for itself, 8 ways, least recently used goes: a load of a line that is not there, or that another CPU has
// stored to since, fetches 64 bytes; a store to a line that is not there and changed already will write 64 bytes, some time.
// What a store would have to fetch first is left out, as with non-temporal stores and whole lines.
//
// Declared by hand from qemu/qemu-plugin.h, which Debian does not package; only what is used.

#define _GNU_SOURCE
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_hwaddr;
typedef struct {
    const char *target_name;
    struct {
        int min, cur;
    } version;
    bool system_emulation;
    struct {
        int smp_vcpus, max_vcpus;
    } system;
} qemu_info_t;

enum { NO_REGISTERS = 0, LOADS_AND_STORES = 3 };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *), int, void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *,
                                      void (*)(unsigned, qemu_plugin_meminfo_t, uint64_t, void *), int, int, void *);
unsigned qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t);
struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t, uint64_t);
bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *);
uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *);

int qemu_plugin_version = 1;

enum who { PROGRAM, BULK, KERNEL, WHO };
enum { LOAD, STORE, FETCH, WRITE, WAYS_OF_ACCESS };
enum { PAGE_SHIFT = 12, LINE_SHIFT = 6, LINE_BYTES = 1 << LINE_SHIFT, WAYS = 8, RANGES = 64 };

// The instruction's last four bytes.
enum { MARK_START = 0x43524b01, MARK_STOP = 0x43524b02 };
static const unsigned char mark_opcode[3] = {0x0f, 0x1f, 0x80};
enum { MARK_BYTES = sizeof mark_opcode + 4 };

// One of a CPU for each page: no other CPU writes to it, so nothing is locked.
typedef uint64_t counters[WHO][WAYS_OF_ACCESS];

// What is kept of each line of memory: how often a CPU took it from the others in order to store, times STORED, and READ once another
// one has fetched it since.
enum { READ = 1, STORED = 2 };

// A line in a CPU's cache: physical address ÷ 64 plus one (0: none), and its version when it came or changed.
struct line {
    uint32_t name, version;
    uint32_t used;
    bool changed;
};

struct cache {
    struct line (*sets)[WAYS];
    uint32_t now;
};

static counters **counts; // of each CPU
static struct cache *caches;
static uint32_t *versions; // of each line of memory
static uint32_t set_count = (1024 << 10) / LINE_BYTES / WAYS;
static int cpus, stops;
static uint64_t node_bytes, page_count;
static const char *prefix;
static volatile bool counting;
static struct {
    uint64_t first, last;
} bulk[RANGES];
static int bulk_count;

// For memory behind several backends QEMU 7 adds the backend's place among the backends to the address: twice the node's start.
static uint64_t address_of(const struct qemu_plugin_hwaddr *where)
{
    uint64_t told = qemu_plugin_hwaddr_phys_addr(where), node = told / (2 * node_bytes);
    return told - node * node_bytes;
}

static struct line *find(struct cache *cache, uint32_t name)
{
    struct line *set = cache->sets[name % set_count], *oldest = set;
    for (int i = 0; i < WAYS; i++) {
        if (set[i].name == name)
            return &set[i];
        if (set[i].used < oldest->used)
            oldest = &set[i];
    }
    *oldest = (struct line){.name = name, .version = versions[name - 1] - STORED};
    return oldest;
}

// Whether the access passes the cache.
static bool passes(struct cache *cache, uint32_t name, bool is_store)
{
    struct line *line = find(cache, name);
    uint32_t *version = &versions[name - 1];
    bool is_valid = ((line->version ^ *version) & ~READ) == 0;
    line->used = ++cache->now;
    if (is_valid && (!is_store || (line->changed && !(*version & READ))))
        return false;
    *version = is_store ? (*version & ~READ) + STORED : *version | READ;
    line->version = *version;
    line->changed = is_store;
    return true;
}

static void on_access(unsigned cpu, qemu_plugin_meminfo_t what, uint64_t address, void *who)
{
    if (!counting)
        return;
    const struct qemu_plugin_hwaddr *where = qemu_plugin_get_hwaddr(what, address);
    if (!where || qemu_plugin_hwaddr_is_io(where))
        return;
    uint64_t physical = address_of(where), page = physical >> PAGE_SHIFT;
    if (page >= page_count || cpu >= (unsigned)cpus)
        return;
    bool is_store = qemu_plugin_mem_is_store(what);
    uint64_t *of_who = counts[cpu][page][(uintptr_t)who];
    of_who[is_store ? STORE : LOAD] += 1u << qemu_plugin_mem_size_shift(what);
    if (passes(&caches[cpu], (physical >> LINE_SHIFT) + 1, is_store))
        of_who[is_store ? WRITE : FETCH] += LINE_BYTES;
}

static void on_start(unsigned cpu, void *unused)
{
    (void)cpu, (void)unused;
    counting = false;
    for (int i = 0; i < cpus; i++)
        madvise(counts[i], page_count * sizeof(counters), MADV_DONTNEED); // zero again, and no memory
    counting = true;
}

static void write_page(FILE *file, uint32_t page, uint32_t cpu)
{
    static const counters none;
    const counters *c = &counts[cpu][page];
    if (memcmp(c, none, sizeof none) == 0)
        return;
    fwrite(&page, sizeof page, 1, file);
    fwrite(&cpu, sizeof cpu, 1, file);
    fwrite(c, sizeof *c, 1, file);
}

static void on_stop(unsigned cpu, void *unused)
{
    (void)cpu, (void)unused;
    char path[4096];
    counting = false;
    snprintf(path, sizeof path, "%s.%d", prefix, stops++);
    FILE *file = fopen(path, "wb");
    for (uint64_t page = 0; file && page < page_count; page++)
        for (int i = 0; i < cpus; i++)
            write_page(file, page, i);
    if (!file || fclose(file) != 0)
        perror(path);
}

static uintptr_t who_is_at(uint64_t address)
{
    if (!(address >> 63))
        return PROGRAM;
    for (int i = 0; i < bulk_count; i++)
        if (bulk[i].first <= address && address <= bulk[i].last)
            return BULK;
    return KERNEL;
}

static uint32_t mark_of(const struct qemu_plugin_insn *instruction)
{
    const unsigned char *bytes = qemu_plugin_insn_data(instruction);
    uint32_t mark = 0;
    if (qemu_plugin_insn_size(instruction) == MARK_BYTES && memcmp(bytes, mark_opcode, sizeof mark_opcode) == 0)
        memcpy(&mark, bytes + sizeof mark_opcode, sizeof mark);
    return mark;
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        uint32_t mark = mark_of(instruction);
        if (mark == MARK_START || mark == MARK_STOP)
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, mark == MARK_START ? on_start : on_stop, NO_REGISTERS,
                                                   NULL);
        else
            qemu_plugin_register_vcpu_mem_cb(instruction, on_access, NO_REGISTERS, LOADS_AND_STORES,
                                             (void *)who_is_at(qemu_plugin_insn_vaddr(instruction)));
    }
}

// Pages that are zero and take memory when they are first used.
static void *reserve(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        perror("numacount");
        exit(1);
    }
    return memory;
}

static void reserve_all(void)
{
    counts = reserve(cpus * sizeof *counts);
    caches = reserve(cpus * sizeof *caches);
    versions = reserve((page_count << PAGE_SHIFT >> LINE_SHIFT) * sizeof *versions);
    for (int i = 0; i < cpus; i++) {
        counts[i] = reserve(page_count * sizeof(counters));
        caches[i].sets = reserve(set_count * sizeof *caches[i].sets);
    }
}

static void read_ranges(char *text)
{
    for (char *range = strtok(text, ":"); range && bulk_count < RANGES; range = strtok(NULL, ":"))
        if (sscanf(range, "%" SCNx64 "-%" SCNx64, &bulk[bulk_count].first, &bulk[bulk_count].last) == 2)
            bulk_count++;
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    int nodes = 0;
    for (int i = 0; i < argc; i++) {
        if (!strncmp(argv[i], "out=", 4))
            prefix = strdup(argv[i] + 4);
        else if (!strncmp(argv[i], "nodes=", 6))
            nodes = atoi(argv[i] + 6);
        else if (!strncmp(argv[i], "node_bytes=", 11))
            node_bytes = strtoull(argv[i] + 11, NULL, 10);
        else if (!strncmp(argv[i], "cache_kib=", 10))
            set_count = strtoul(argv[i] + 10, NULL, 10) * 1024 / LINE_BYTES / WAYS;
        else if (!strncmp(argv[i], "bulk=", 5))
            read_ranges(argv[i] + 5);
    }
    if (!prefix || !node_bytes || nodes <= 0 || set_count == 0) {
        fprintf(stderr, "numacount: needs out=, nodes= and node_bytes=\n");
        return 1;
    }
    cpus = info->system.smp_vcpus;
    page_count = nodes * node_bytes >> PAGE_SHIFT;
    reserve_all();
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    return 0;
}
