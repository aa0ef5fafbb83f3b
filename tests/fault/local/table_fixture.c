/* table_fixture.c - makes tables, opens them in children, and compares files. */
#include "table_fixture.h"

int scene_begin(void **state)
{
    struct scene *s = calloc(1, sizeof *s);
    snprintf(s->dir, sizeof s->dir, "/tmp/holdfast-table.XXXXXX");
    if (!s || !mkdtemp(s->dir) || chmod(s->dir, 0755) != 0)
        return -1;
    snprintf(s->path, sizeof s->path, "%s/table", s->dir);
    snprintf(s->url, sizeof s->url, "local:%s", s->path);
    *state = s;
    return 0;
}

int scene_end(void **state)
{
    struct scene *s = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", s->dir);
    int failed = system(command);
    free(s);
    return failed;
}

pid_t start_child(void (*fn)(void *), void *arg, unsigned seconds)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(seconds);
    fn(arg);
    _exit(0);
}

int end_of(pid_t pid)
{
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

void in_child(void (*fn)(void *), void *arg)
{
    assert_int_equal(end_of(start_child(fn, arg, 60)), 0);
}

void become(uid_t user, gid_t group, gid_t also)
{
    REQUIRE(setgroups(also ? 1 : 0, &also) == 0);
    REQUIRE(setresgid(group, group, group) == 0);
    REQUIRE(setresuid(user, user, user) == 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of user takes it away */
}

hf_status scene_open(const char *url, hf_client **client)
{
    struct hf_client_options options = {.size = sizeof options, .no_environment = true};
    return hf_open(url, &options, client);
}

struct answer try_open(const char *url)
{
    hf_client *client;
    struct answer a = {.status = scene_open(url, &client)};
    snprintf(a.text, sizeof a.text, "%s", hf_error_text());
    if (a.status == HF_OK)
        a.status = hf_close(client, 1000);
    return a;
}

bool refused(const char *url, hf_status status, const char *path, const char *words)
{
    struct answer a = try_open(url);
    bool as_wanted = a.status == status && strstr(a.text, path) && strstr(a.text, words);
    if (!as_wanted)
        fprintf(stderr, "%s: wanted %s and \"%s\" with \"%s\", got %s \"%s\"\n", url,
                hf_status_name(status), words, path, hf_status_name(a.status), a.text);
    return as_wanted;
}

void make_table(const struct scene *s)
{
    assert_int_equal(try_open(s->url).status, HF_OK);
}

struct bytes read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    struct stat st;
    assert_int_equal(fstat(fileno(f), &st), 0);
    struct bytes b = {.at = malloc((size_t)st.st_size + 1), .len = (size_t)st.st_size};
    assert_non_null(b.at);
    assert_int_equal(fread(b.at, 1, b.len, f), b.len);
    fclose(f);
    return b;
}

void write_file(const char *path, const void *bytes, size_t len)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

void assert_file_is(const char *path, const void *bytes, size_t len)
{
    struct bytes now = read_file(path);
    assert_int_equal(now.len, len);
    assert_memory_equal(now.at, bytes, len);
    free(now.at);
}

void poke(const char *path, size_t at, const void *bytes, size_t len)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, len, (off_t)at), len);
    close(fd);
}

void poke_head(const char *path, size_t at, const void *bytes, size_t len)
{
    struct bytes b = read_file(path);
    struct table_head *head = (void *)b.at;
    memcpy(b.at + at, bytes, len);
    head->checksum = table_checksum(head);
    poke(path, 0, b.at, LOCAL_PAGE);
    free(b.at);
}

int count_files(const char *dir, const char *part)
{
    int count = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        count += e->d_name[0] != '.' && strstr(e->d_name, part);
    closedir(d);
    return count;
}

hf_status acquire(hf_client *client, const char *name, int64_t wait_ms, hf_lease **lease)
{
    struct hf_request want = {
        .size = sizeof want, .name = name, .ttl_ms = 30000, .wait_ms = wait_ms};
    return hf_acquire(client, &want, lease);
}
