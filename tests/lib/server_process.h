/* server_process.h - the process of a server that a test starts: its folder, its log, its end. A
 * function that cannot do its work fails the test. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct server_process {
    char directory[64];
    pid_t pid; /* 0: it is down */
};

/* Makes a fresh folder "PARENT/holdfast-WORD.XXXXXX". */
void server_process_place(struct server_process *p, const char *parent, const char *word);
/* Starts a program in the folder, with its output in the file `log` there. It dies with the test.
 * `argv` begins with the path of the program and ends with NULL. */
void server_process_start(struct server_process *p, const char *const *argv);
/* Waits until is_ready(server) returns true. Returns false if the process ended instead: another
 * process may have taken one of its ports. */
bool server_process_await(struct server_process *p, bool (*is_ready)(const void *server),
                          const void *server, int patience_ms);

void server_process_end(struct server_process *p, int signal); /* SIGKILL or SIGTERM; waits */
void server_process_pause(const struct server_process *p);
void server_process_continue(const struct server_process *p);
/* Kills the process if it is up, and removes the folder. */
void server_process_remove(struct server_process *p);

/* Sends bytes to a port of this machine, and reads until the end of the stream or a silence of
 * `patience_s`. The answer is a text; "" if nobody answered. */
void ask_port(uint16_t port, const void *question, size_t len, char *answer, size_t size,
              int patience_s);
