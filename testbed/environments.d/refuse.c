/* Runs a command whose named system calls are refused with an errno, by a seccomp filter.
 *
 * usage: refuse ERRNO CALL[,CALL...] COMMAND [ARGUMENT...]
 *
 * ERRNO and CALL are names (EPERM, fchmod). Exit status 99: there is no seccomp; 98: a name that is not known here.
 * A CALL that this architecture does not have is not refused. `tmpfile` stands for openat(2) with O_TMPFILE.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

struct named {
	const char *name;
	int number;
};

static const struct named ERRNOS[] = {
	{ "EPERM", EPERM },   { "ENOSYS", ENOSYS }, { "EOPNOTSUPP", EOPNOTSUPP }, { "EXDEV", EXDEV },
	{ "EMLINK", EMLINK }, { "EACCES", EACCES }, { "EINVAL", EINVAL },         { "EIO", EIO },
};

#define CALL(name) { #name, SYS_##name }
static const struct named CALLS[] = {
#ifdef SYS_chmod
	CALL(chmod), CALL(chown), CALL(lchown), CALL(link), CALL(symlink), CALL(rename), CALL(mknod), CALL(mkdir), CALL(utimes),
#endif
#ifdef SYS_renameat
	CALL(renameat),
#endif
#ifdef SYS_fchmodat2
	CALL(fchmodat2),
#endif
	CALL(fchmod), CALL(fchmodat), CALL(fchown), CALL(fchownat), CALL(utimensat), CALL(flock), CALL(fcntl),
	CALL(linkat), CALL(symlinkat), CALL(mknodat), CALL(setxattr), CALL(lsetxattr), CALL(fsetxattr), CALL(getxattr),
	CALL(lgetxattr), CALL(fgetxattr), CALL(listxattr), CALL(llistxattr), CALL(flistxattr), CALL(removexattr),
	CALL(lremovexattr), CALL(fremovexattr), CALL(fallocate), CALL(openat2), CALL(copy_file_range), CALL(statx),
	CALL(renameat2), CALL(name_to_handle_at), CALL(open_by_handle_at), CALL(io_uring_setup), CALL(sendfile), CALL(splice), CALL(tee),
	CALL(vmsplice), CALL(fsync), CALL(fdatasync), CALL(syncfs), CALL(sync_file_range), CALL(fadvise64), CALL(readahead),
	CALL(ftruncate), CALL(statfs), CALL(fstatfs), CALL(sched_setaffinity), CALL(sched_getaffinity), CALL(setpriority), CALL(prlimit64),
	CALL(memfd_create), CALL(mlock), CALL(mbind), CALL(set_mempolicy), CALL(get_mempolicy), CALL(landlock_create_ruleset),
	CALL(ioctl), CALL(pidfd_open), CALL(eventfd2), CALL(getrandom), CALL(madvise), CALL(membarrier), CALL(rseq), CALL(close_range),
};

static int number_of(const struct named *table, size_t count, const char *name)
{
	for (size_t index = 0; index < count; index++)
		if (strcmp(table[index].name, name) == 0)
			return table[index].number;
	return -1;
}

#define COUNT(table) (sizeof(table) / sizeof *(table))
#define INSTRUCTIONS_MAX 256

static struct sock_filter program[INSTRUCTIONS_MAX];
static size_t length;

static void add(struct sock_filter instruction)
{
	if (length < INSTRUCTIONS_MAX)
		program[length++] = instruction;
}

static void load(size_t offset)
{
	add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset));
}

static void refuse_call(int call, int error)
{
	add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
	add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
}

/* openat(2) only with all bits of O_TMPFILE that O_DIRECTORY does not have: the third argument, on a little-endian machine. */
static void refuse_nameless_files(int error)
{
	add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 4));
	load(offsetof(struct seccomp_data, args[2]));
	add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_TMPFILE & ~O_DIRECTORY, 0, 1));
	add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
	load(offsetof(struct seccomp_data, nr));
}

int main(int argc, char **argv)
{
	if (argc < 4) {
		fprintf(stderr, "usage: refuse ERRNO CALL[,CALL...] COMMAND [ARGUMENT...]\n");
		return 98;
	}
	int error = number_of(ERRNOS, COUNT(ERRNOS), argv[1]);
	load(offsetof(struct seccomp_data, nr));
	for (char *name = strtok(argv[2], ","); name; name = strtok(NULL, ",")) {
		int call = number_of(CALLS, COUNT(CALLS), name);
		if (strcmp(name, "tmpfile") == 0)
			refuse_nameless_files(error);
		else if (call >= 0)
			refuse_call(call, error);
		else if (strcmp(name, "fchmodat2") != 0) {
			fprintf(stderr, "refuse: no such call: %s\n", name);
			return 98;
		}
	}
	add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
	if (error < 0 || length == INSTRUCTIONS_MAX) {
		fprintf(stderr, "refuse: no such errno, or too many calls\n");
		return 98;
	}
	struct sock_fprog filter = { (unsigned short)length, program };
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
		return 99;
	execvp(argv[3], argv + 3);
	perror(argv[3]);
	return 127;
}
