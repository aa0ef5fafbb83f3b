/* board.c - describes the service to the page. The address of the engine is not revealed; its kind
 * and the version of its server are. */
#include "board.h"
#include "lock_client.h"
#include "row_json.h"
#include <string.h>
#include <unistd.h>

/* The finding `server` begins with the name and the version: "Redis 7.0.15, standalone, ...". */
static void note_server(void *text, const struct hf_finding *finding)
{
    char *server = text;
    bool is_first = strcmp(finding->what, "server") == 0 && !*server;
    if (is_first && finding->health != HF_HEALTH_BAD)
        snprintf(server, BOARD_SERVER_BYTES, "%.*s", (int)strcspn(finding->text, ","),
                 finding->text);
}

void board_ask_server(const struct server *server, char text[BOARD_SERVER_BYTES])
{
    *text = 0;
    if (hf_diagnose(lock_client_client(server->engine), note_server, text) != HF_OK)
        *text = 0;
}

json_t *board_json(const struct board *board, const struct server *server)
{
    const char *title = setting_text(&server->settings, SET_TITLE);
    char host[256] = "";
    json_t *json = json_object();

    gethostname(host, sizeof host - 1);
    json_object_set_new(json, "title", text_json(title));
    json_object_set_new(json, "colour", text_json(setting_text(&server->settings, SET_COLOUR)));
    json_object_set_new(json, "engine",
                        text_json(hf_client_engine(lock_client_client(server->engine))));
    json_object_set_new(json, "server", text_json(board->server));
    json_object_set_new(json, "host", text_json(host));
    json_object_set_new(json, "pid", json_integer(getpid()));
    json_object_set_new(json, "version", text_json(hf_version()));
    json_object_set_new(json, "uptimeMs", json_integer(clock_ms() - server->began_ms));
    json_object_set_new(json, "hour", hour_json(&board->hour, wall_ms()));

    return json;
}
