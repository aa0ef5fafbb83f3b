/* barrage.c - starts N copies of a command at the same moment and prints the exit code of each, a
 * line each, as it ends.
 *
 *     barrage N CMD... */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int gate[2], status;
    if (argc < 3 || pipe(gate) != 0)
        return 64;
    for (long left = atol(argv[1]); left > 0; left--) {
        pid_t pid = fork();
        if (pid < 0) {
            perror("fork");
            return 70;
        }
        if (pid > 0)
            continue;
        char byte;
        close(gate[1]);
        (void)!read(gate[0], &byte, 1);
        close(gate[0]);
        execvp(argv[2], argv + 2);
        perror(argv[2]);
        _exit(127);
    }
    close(gate[0]);
    close(gate[1]);
    while (wait(&status) > 0) {
        printf("%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
        fflush(stdout);
    }
    return 0;
}
