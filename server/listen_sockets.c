/* listen_sockets.c - turns addresses into sockets. An address that others can reach is refused
 * unless tokens or client certificates are required. */
#include "listen_sockets.h"
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define EXIT_UNAVAILABLE 69
#define EXIT_CONFIG 78
#define BACKLOG 1024
/* longest time for which an expired certificate can still be used by resuming a session */
#define RESUMED_S 600
#define PORT_MAX 65535
#define FIRST_GIVEN 3 /* first descriptor that systemd passes */

static const char UNIX_SCHEME[] = "unix:";
static const char REACHABLE[] =
    "others can reach this address: give --token-file or --tls-client-ca";

static bool is_unix(const char *text)
{
    return strncmp(text, UNIX_SCHEME, sizeof UNIX_SCHEME - 1) == 0;
}

static int refuse(const char *text, const char *why)
{
    log_complain("listen \"%s\": %s", text, why);
    return EXIT_CONFIG;
}

/* Returns true for a port number that is too large: getaddrinfo would silently use its low 16
 * bits. */
static bool is_beyond_ports(const char *port)
{
    return port[strspn(port, "0123456789")] == 0 && strtoul(port, NULL, 10) > PORT_MAX;
}

/* Looks up "HOST:PORT", "[::1]:PORT" or ":PORT". */
static int look_up(const char *text, struct addrinfo **found)
{
    char host[256];
    const char *colon = strrchr(text, ':');
    struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};

    bool is_malformed = !colon || colon[1] == 0 || (size_t)(colon - text) >= sizeof host;
    if (is_malformed)
        return refuse(text, "is neither HOST:PORT nor unix:/path");
    if (is_beyond_ports(colon + 1))
        return refuse(text, "a port is a number up to 65535");

    snprintf(host, sizeof host, "%.*s", (int)(colon - text), text);
    char *name = host;
    if (host[0] == '[' && host[strlen(host) - 1] == ']') {
        host[strlen(host) - 1] = 0;
        name++;
    }
    int error = getaddrinfo(*name ? name : NULL, colon + 1, &hints, found);

    return error == 0 ? 0 : refuse(text, gai_strerror(error));
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 ==
               127;
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

/* Returns true if every caller must show a token or a certificate. */
static bool requires_credentials(const struct server *server)
{
    return setting_text(&server->settings, SET_TOKEN_FILE) ||
           setting_text(&server->settings, SET_TLS_CLIENT_CA);
}

/* Refuses an address that others can reach unless callers need credentials. Returns 0, or an exit
 * code after a message. */
static int admit_address(struct server *server, const char *text, bool is_inside)
{
    bool credentials = requires_credentials(server);
    bool is_readable = setting_text(&server->settings, SET_TOKEN_FILE) &&
                       !setting_text(&server->settings, SET_TLS_CERT);

    if (!is_inside && !credentials)
        return refuse(text, REACHABLE);
    if (!is_inside && is_readable)
        log_complain("listen \"%s\": warning: tokens and lease ids are sent without TLS, and "
                     "everybody on the way can read them; give --tls-cert and --tls-key",
                     text);
    server->host_checked |= is_inside && !credentials;
    return 0;
}

static int check_one(struct server *server, const char *text)
{
    struct addrinfo *found;

    if (is_unix(text))
        return 0;

    int code = look_up(text, &found);
    if (code != 0)
        return code;

    bool is_inside = is_loopback(found->ai_addr);
    freeaddrinfo(found);
    return admit_address(server, text, is_inside);
}

int listen_sockets_check(struct server *server)
{
    const struct setting_value *given = &server->settings.value[SET_LISTEN];
    int code = 0;

    for (size_t i = 0; code == 0 && i < given->count; i++)
        code = check_one(server, given->items[i]);
    return code;
}

/* ---- Sockets ---- */

static int cannot(const char *text, int fd)
{
    log_complain("cannot listen on \"%s\": %s", text, strerror(errno));
    if (fd >= 0)
        close(fd);
    return EXIT_UNAVAILABLE;
}

static int take(struct server *server, const char *text, int fd, bool tls)
{
    evutil_make_socket_nonblocking(fd);
    return http_listen(server->http, fd, tls) ? 0 : cannot(text, fd);
}

/* Removes a socket on which nobody accepts connections, left behind by a killed service. */
static void remove_stale(const struct sockaddr_un *address)
{
    struct stat info;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_socket = lstat(address->sun_path, &info) == 0 && S_ISSOCK(info.st_mode);

    bool is_stale = fd >= 0 && is_socket &&
                    connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 &&
                    errno == ECONNREFUSED;
    if (is_stale)
        unlink(address->sun_path);
    if (fd >= 0)
        close(fd);
}

static int listen_unix(struct server *server, const char *text)
{
    const char *path = text + sizeof UNIX_SCHEME - 1;
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (*path == 0 || strlen(path) >= sizeof address.sun_path)
        return refuse(text, "the path is empty or too long");

    strcpy(address.sun_path, path);
    remove_stale(&address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    mode_t before = umask(0177);
    bool bound = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    umask(before);
    if (!bound || listen(fd, BACKLOG) != 0)
        return cannot(text, fd);
    return take(server, text, fd, false);
}

static int listen_tcp(struct server *server, const char *text, bool tls)
{
    struct addrinfo *found;
    int one = 1, code = look_up(text, &found);

    if (code != 0)
        return code;

    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool bound = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
                 bind(fd, found->ai_addr, found->ai_addrlen) == 0;
    freeaddrinfo(found);
    if (!bound || listen(fd, BACKLOG) != 0)
        return cannot(text, fd);
    return take(server, text, fd, tls);
}

/* Takes the sockets that systemd opened, in place of the configured ones. Returns -1 if there
 * are none. */
static int take_given(struct server *server, bool tls)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    int code = 0;

    bool none_passed = !pid || !count || atoi(pid) != (int)getpid();
    if (none_passed)
        return -1;

    for (int fd = FIRST_GIVEN; code == 0 && fd < FIRST_GIVEN + atoi(count); fd++) {
        struct sockaddr_storage address;
        socklen_t len = sizeof address;
        if (getsockname(fd, (struct sockaddr *)&address, &len) != 0)
            return cannot("a socket of systemd", -1);
        bool is_unix_socket = address.ss_family == AF_UNIX;
        if (!is_unix_socket)
            code = admit_address(server, "a socket of systemd",
                                 is_loopback((struct sockaddr *)&address));
        if (code == 0)
            code = take(server, "a socket of systemd", fd, tls && !is_unix_socket);
    }

    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");

    return code;
}

int listen_sockets_open(struct server *server)
{
    const struct setting_value *given = &server->settings.value[SET_LISTEN];
    bool tls = setting_text(&server->settings, SET_TLS_CERT) != NULL;
    int code = take_given(server, tls);

    if (code >= 0)
        return code;

    code = 0;
    for (size_t i = 0; code == 0 && i < given->count; i++)
        code = is_unix(given->items[i]) ? listen_unix(server, given->items[i])
                                        : listen_tcp(server, given->items[i], tls);

    return code;
}

/* Prints an address as --listen accepts it. */
static void print_address(const struct sockaddr *address, char *text, size_t size)
{
    char host[NI_MAXHOST], port[NI_MAXSERV];

    socklen_t len =
        address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    if (address->sa_family == AF_UNIX)
        snprintf(text, size, "%s%s", UNIX_SCHEME,
                 ((const struct sockaddr_un *)(const void *)address)->sun_path);
    else if (getnameinfo(address, len, host, sizeof host, port, sizeof port,
                         NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        snprintf(text, size, address->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
    else
        snprintf(text, size, "a socket");
}

void listen_sockets_announce(const struct server *server)
{
    char text[NI_MAXHOST + NI_MAXSERV];
    int fd;

    for (size_t i = 0; (fd = http_listening(server->http, i)) >= 0; i++) {
        struct sockaddr_storage address = {0};
        socklen_t len = sizeof address - 1; /* a path may fill its field without a NUL */
        if (getsockname(fd, (struct sockaddr *)&address, &len) != 0)
            continue;
        print_address((const struct sockaddr *)&address, text, sizeof text);
        log_complain("serving on %s", text);
    }
}

void listen_sockets_close(struct server *server)
{
    const struct setting_value *given = &server->settings.value[SET_LISTEN];
    for (size_t i = 0; i < given->count; i++)
        if (is_unix(given->items[i]))
            unlink(given->items[i] + sizeof UNIX_SCHEME - 1);
}

/* ---- TLS ---- */

static int cannot_secure(SSL_CTX *tls, const char *what)
{
    log_complain("%s: %s", what, ERR_reason_error_string(ERR_peek_last_error()));
    SSL_CTX_free(tls);
    return EXIT_CONFIG;
}

/* A client that resumes its session does not present its certificate again. OpenSSL allows that
 * only if the sessions have a context that separates them from other services in the process. */
static bool let_resume(SSL_CTX *tls)
{
    static const unsigned char context[] = "holdfast serve";
    SSL_CTX_set_timeout(tls, RESUMED_S);
    return SSL_CTX_set_session_id_context(tls, context, sizeof context - 1) == 1;
}

int listen_sockets_tls(struct server *server, SSL_CTX **out)
{
    const char *cert = setting_text(&server->settings, SET_TLS_CERT),
               *key = setting_text(&server->settings, SET_TLS_KEY);
    const char *ca = setting_text(&server->settings, SET_TLS_CLIENT_CA);

    *out = NULL;
    if (!cert && !ca)
        return 0;
    if (!cert || !key) {
        log_complain("TLS needs both tls-cert and tls-key");
        return EXIT_CONFIG;
    }

    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
    bool is_ready =
        tls && SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION) == 1 && let_resume(tls);
    if (!is_ready)
        return cannot_secure(tls, "TLS");
    if (SSL_CTX_use_certificate_chain_file(tls, cert) != 1)
        return cannot_secure(tls, "tls-cert");
    if (SSL_CTX_use_PrivateKey_file(tls, key, SSL_FILETYPE_PEM) != 1)
        return cannot_secure(tls, "tls-key");
    if (ca && SSL_CTX_load_verify_locations(tls, ca, NULL) != 1)
        return cannot_secure(tls, "tls-client-ca");

    if (ca)
        SSL_CTX_set_verify(tls, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);

    *out = tls;
    return 0;
}

void listen_sockets_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    bool is_unusable =
        !path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof address.sun_path;
    if (is_unusable)
        return;

    strcpy(address.sun_path, path);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    if (path[0] == '@')
        address.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;

    if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address, len) < 0)
        log_complain("cannot notify systemd: %s", strerror(errno));
    close(fd);
}
