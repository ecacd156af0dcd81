// Tells the plugin of testbed/numacount.c to begin or to end counting, and proves that it counts right.
//
//   mark start | stop
//   mark touch CPU NODE MIB     on CPU, stores to and loads from every word of so much memory of NODE, once; prints
//                               its physical pages like witness.c: {"touch":[CPU,NODE,BYTES],"frames":[[FIRST,COUNT],...]}
//   mark files PATH...          prints the physical pages of files in the page cache: {"files":N,"frames":[...]}

#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096, MPOL_BIND = 2 };

static int pagemap;
static uint64_t run_first, run_count;
static const char *comma = "";

static void die(const char *what)
{
    perror(what);
    exit(1);
}

// The four bytes at the end are MARK_START and MARK_STOP of testbed/numacount.c.
static void start(void)
{
    __asm__ volatile(".byte 0x0f, 0x1f, 0x80; .long 0x43524b01" ::: "memory");
}

static void stop(void)
{
    __asm__ volatile(".byte 0x0f, 0x1f, 0x80; .long 0x43524b02" ::: "memory");
}

static void end_run(void)
{
    if (run_count == 0)
        return;
    printf("%s[%lu,%lu]", comma, (unsigned long)run_first, (unsigned long)run_count);
    comma = ",";
    run_count = 0;
}

// pagemap: 64 bits a page, bit 63 present, bits 0 to 54 the frame.
static void tell_page(const volatile char *address)
{
    uint64_t entry = 0;
    (void)*address; // it has to be in this process's page table
    if (pread(pagemap, &entry, sizeof entry, (uintptr_t)address / PAGE_BYTES * sizeof entry) != sizeof entry)
        die("pagemap");
    uint64_t frame = entry >> 63 ? entry & ((1ULL << 55) - 1) : 0;
    if (frame == 0)
        return;
    if (run_count == 0 || frame != run_first + run_count) {
        end_run();
        run_first = frame;
    }
    run_count++;
}

static void touch(int cpu, int node, size_t bytes)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        die("sched_setaffinity");
    uint64_t *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned long nodes = 1UL << node;
    if (words == MAP_FAILED || syscall(SYS_mbind, words, bytes, MPOL_BIND, &nodes, 64, 0) != 0)
        die("mbind");
    memset(words, 1, bytes); // the kernel clears pages before it gives them: not to be counted
    start();
    for (volatile uint64_t *word = words; word < words + bytes / 8; word++)
        *word = *word + 1;
    stop();
    printf("{\"touch\":[%d,%d,%zu],\"frames\":[", cpu, node, bytes);
    for (size_t at = 0; at < bytes; at += PAGE_BYTES)
        tell_page((char *)words + at);
    end_run();
    printf("]}\n");
}

static void tell_file(const char *path)
{
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &status) != 0)
        die(path);
    if (status.st_size > 0) {
        char *bytes = mmap(NULL, status.st_size, PROT_READ, MAP_SHARED, file, 0);
        if (bytes == MAP_FAILED)
            die(path);
        for (off_t at = 0; at < status.st_size; at += PAGE_BYTES)
            tell_page(bytes + at);
        munmap(bytes, status.st_size);
    }
    close(file);
}

int main(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";
    if ((pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) < 0)
        die("pagemap");
    if (!strcmp(verb, "start")) {
        start();
    } else if (!strcmp(verb, "stop")) {
        stop();
    } else if (!strcmp(verb, "touch") && argc == 5) {
        touch(atoi(argv[2]), atoi(argv[3]), (size_t)atol(argv[4]) << 20);
    } else if (!strcmp(verb, "files")) {
        printf("{\"files\":%d,\"frames\":[", argc - 2);
        for (int i = 2; i < argc; i++)
            tell_file(argv[i]);
        end_run();
        printf("]}\n");
    } else {
        fprintf(stderr, "usage: mark start | stop | touch CPU NODE MIB | files PATH...\n");
        return 2;
    }
    return 0;
}
