/* measure FIGURES SECONDS PROGRAM [ARGUMENT...]
 *
 * Runs one program and writes what it took to the file FIGURES, one "name value" per line. A process of its own,
 * because the kernel counts the spawner's memory as the child's peak until the child execs: from this one that is a
 * megabyte, from cargo xtask it would be the memory for writing a million-job spec file.
 *
 * The program leads a process group; the group is killed after SECONDS, or when this process is told to stop.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static volatile sig_atomic_t child = 0;
static volatile sig_atomic_t stopped_by = 0;

static void stop(int signal_number) {
    stopped_by = signal_number;
    if (child > 0) kill(-child, SIGKILL);
}

static long long nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static long long microseconds(struct timeval time) { return time.tv_sec * 1000000LL + time.tv_usec; }

int main(int count, char **words) {
    if (count < 4) {
        fprintf(stderr, "usage: measure FIGURES SECONDS PROGRAM [ARGUMENT...]\n");
        return 2;
    }
    struct sigaction action = {.sa_handler = stop}; /* without SA_RESTART: wait4 must notice */
    int stops[] = {SIGALRM, SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) sigaction(stops[i], &action, NULL);

    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    sigset_t defaults;
    sigfillset(&defaults);
    posix_spawnattr_setsigdefault(&attributes, &defaults);

    long long start = nanoseconds();
    pid_t pid;
    int error = posix_spawnp(&pid, words[3], NULL, &attributes, words + 3, environ);
    if (error) {
        fprintf(stderr, "measure: cannot start %s: %s\n", words[3], strerror(error));
        return 127;
    }
    child = pid;
    if (stopped_by) kill(-child, SIGKILL);
    alarm((unsigned)atoi(words[2]));

    int status;
    struct rusage used;
    while (wait4(pid, &status, 0, &used) < 0)
        if (errno != EINTR) return 1;
    long long wall = nanoseconds() - start;
    kill(-pid, SIGKILL); /* leftover processes must not disturb the next one */
    if (stopped_by && stopped_by != SIGALRM) return 1;

    FILE *figures = fopen(words[1], "w");
    if (!figures) {
        perror(words[1]);
        return 1;
    }
    fprintf(figures, "wall_ns %lld\nuser_us %lld\nsystem_us %lld\nmax_rss_kib %ld\n", wall,
            microseconds(used.ru_utime), microseconds(used.ru_stime), used.ru_maxrss);
    fprintf(figures, "timed_out %d\nexit %d\nsignal %d\n", stopped_by == SIGALRM,
            WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    return fclose(figures) ? 1 : 0;
}
