/* Lets one call on a file below a folder fail: preloaded into a process, and armed by fault_arm(). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static int number, at, reading, calls, met;
static char folder[4096];

/* From now on, the `place`-th call fails with an error number, and all later ones do, too. */
void fault_arm(int error, int place, int reads, const char *where) {
    calls = met = 0;
    strncpy(folder, where, sizeof folder - 1);
    reading = reads, at = place, number = error;
}
int fault_met(void) { return met; }
int fault_calls(void) { return calls; }

static int below(const char *path) { return path && !strncmp(path, folder, strlen(folder)); }
static int fails(int reads, int inside) {
    if (!number || !inside || reads != reading || calls++ < at) return 0;
    met = 1;
    errno = number;
    return 1;
}
static int open_below(int handle) {
    char name[64], path[4096];
    snprintf(name, sizeof name, "/proc/self/fd/%d", handle);
    int saved = errno;
    ssize_t size = number ? readlink(name, path, sizeof path - 1) : -1;
    errno = saved;
    if (size < 0) return 0;
    path[size] = 0;
    return below(path);
}
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WRITES(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT))
#define OPEN(name) int name(const char *path, int flags, ...) { \
    va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
    return fails(!WRITES(flags), below(path)) ? -1 : NEXT(name)(path, flags, mode); }
OPEN(open)
OPEN(open64)
FILE *fopen64(const char *path, const char *mode) {
    return fails(*mode == 'r', below(path)) ? NULL : NEXT(fopen64)(path, mode);
}
ssize_t write(int handle, const void *data, size_t size) {
    return fails(0, open_below(handle)) ? -1 : NEXT(write)(handle, data, size);
}
ssize_t pwrite64(int handle, const void *data, size_t size, off64_t place) {
    return fails(0, open_below(handle)) ? -1 : NEXT(pwrite64)(handle, data, size, place);
}
ssize_t read(int handle, void *data, size_t size) {
    return fails(1, open_below(handle)) ? -1 : NEXT(read)(handle, data, size);
}
ssize_t pread64(int handle, void *data, size_t size, off64_t place) {
    return fails(1, open_below(handle)) ? -1 : NEXT(pread64)(handle, data, size, place);
}
int fsync(int handle) { return fails(0, open_below(handle)) ? -1 : NEXT(fsync)(handle); }
int rename(const char *old, const char *new) { return fails(0, below(new)) ? -1 : NEXT(rename)(old, new); }
int mkdir(const char *path, mode_t mode) { return fails(0, below(path)) ? -1 : NEXT(mkdir)(path, mode); }
