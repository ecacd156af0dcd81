/* Runs a command as nobody, who may lock 64 KiB of memory and no more: unlocked COMMAND... */
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

enum { NOBODY = 65534, LOCKED_BYTES = 64 << 10 };

int main(int argc, char **argv) {
    const struct rlimit limit = {LOCKED_BYTES, LOCKED_BYTES};
    if (argc < 2 || setrlimit(RLIMIT_MEMLOCK, &limit) || setgid(NOBODY) || setuid(NOBODY)) {
        perror("unlocked");
        return 2;
    }
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 2;
}
