/* Preloaded into a daemon, lets it see another wall clock: ahead of the machine's by as many seconds as a file says, which may
 * change while it runs. The file is TRIAL_CLOCKS/PROGRAM and holds one 64-bit integer. Other clocks stay what they are. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t *ahead;

__attribute__((constructor)) static void find_clock(void) {
    const char *folder = getenv("TRIAL_CLOCKS");
    char path[PATH_MAX];
    if (folder == NULL) return;
    snprintf(path, sizeof path, "%s/%s", folder, program_invocation_short_name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    void *found = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) ahead = found;
    close(file);
}

static int64_t shift(void) { return ahead == NULL ? 0 : __atomic_load_n(ahead, __ATOMIC_RELAXED); }

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (failed == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int failed = syscall(SYS_gettimeofday, now, zone);
    if (failed == 0 && now != NULL) now->tv_sec += shift();
    return failed;
}

time_t time(time_t *kept) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (kept != NULL) *kept = now.tv_sec;
    return now.tv_sec;
}
