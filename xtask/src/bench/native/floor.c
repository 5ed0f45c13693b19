/* floor AT_ONCE FILE
 *
 * Starts every line of FILE with `/bin/sh -c`, AT_ONCE at a time: the least that a program which runs commands can do.
 * No logs, no process groups, no memory of what happened; exits 1 if a command did.
 */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

static int failed = 0;

static void await_one(void) {
    int status;
    if (wait(&status) < 0 || status != 0) failed = 1;
}

int main(int count, char **words) {
    FILE *commands = count == 3 ? fopen(words[2], "r") : NULL;
    if (!commands) {
        fprintf(stderr, "usage: floor AT_ONCE FILE\n");
        return 2;
    }
    int at_once = atoi(words[1]), running = 0;
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, commands) > 0) {
        line[strcspn(line, "\n")] = 0;
        if (running == at_once) {
            await_one();
            running--;
        }
        char *shell[] = {"sh", "-c", line, NULL};
        pid_t pid;
        if (posix_spawn(&pid, "/bin/sh", NULL, NULL, shell, environ)) return 1;
        running++;
    }
    while (running-- > 0) await_one();
    return failed;
}
