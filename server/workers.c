/* workers.c - two queues under one mutex: jobs to do, and jobs that are done and wait for the
 * loop. */
#include "workers.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct line {
    struct job *first, *last;
};

struct workers {
    pthread_mutex_t lock;
    pthread_cond_t posted;
    struct line to_do, done;
    bool stop;
    int wake_event;
    struct event *event, *at_once; /* at_once: workers_do has run a job */
    size_t pending, count;
    pthread_t threads[];
};

static void put(struct line *line, struct job *job)
{
    job->next = NULL;
    *(line->first ? &line->last->next : &line->first) = job;
    line->last = job;
}

static struct job *take(struct line *line)
{
    struct job *job = line->first;
    if (job)
        line->first = job->next;
    return job;
}

static void *work(void *arg)
{
    struct workers *workers = arg;
    static const unsigned long long one = 1;

    pthread_mutex_lock(&workers->lock);
    for (;;) {
        struct job *job = take(&workers->to_do);
        if (!job && workers->stop)
            break;
        if (!job) {
            pthread_cond_wait(&workers->posted, &workers->lock);
            continue;
        }
        pthread_mutex_unlock(&workers->lock);
        job->work(job);
        pthread_mutex_lock(&workers->lock);
        put(&workers->done, job);
        if (write(workers->wake_event, &one, sizeof one) < 0) {
            /* an eventfd refuses only if it is readable already */
        }
    }

    pthread_mutex_unlock(&workers->lock);

    return NULL;
}

static void finish_jobs(struct workers *workers)
{
    for (;;) {
        pthread_mutex_lock(&workers->lock);
        struct job *job = take(&workers->done);
        pthread_mutex_unlock(&workers->lock);
        if (!job)
            return;
        workers->pending--;
        job->done(job);
    }
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
    unsigned long long woken;
    (void)what;
    if (read(fd, &woken, sizeof woken) < 0)
        return;
    finish_jobs(arg);
}

static void on_done_at_once(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    finish_jobs(arg);
}

struct workers *workers_start(struct event_base *base, size_t count)
{
    struct workers *workers = calloc(1, sizeof *workers + count * sizeof workers->threads[0]);

    if (!workers)
        return NULL;

    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->posted, NULL);
    workers->wake_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    workers->event = event_new(base, workers->wake_event, EV_READ | EV_PERSIST, on_wake, workers);
    workers->at_once = event_new(base, -1, 0, on_done_at_once, workers);
    bool ready = workers->wake_event >= 0 && workers->event && workers->at_once &&
                 event_add(workers->event, NULL) == 0;
    if (ready)
        while (workers->count < count &&
               pthread_create(&workers->threads[workers->count], NULL, work, workers) == 0)
            workers->count++;

    if (workers->count == count)
        return workers;

    workers_stop(workers);

    return NULL;
}

void workers_post(struct workers *workers, struct job *job)
{
    workers->pending++;
    pthread_mutex_lock(&workers->lock);
    put(&workers->to_do, job);
    pthread_cond_signal(&workers->posted);
    pthread_mutex_unlock(&workers->lock);
}

void workers_do(struct workers *workers, struct job *job)
{
    workers->pending++;
    job->work(job);
    pthread_mutex_lock(&workers->lock);
    put(&workers->done, job);
    pthread_mutex_unlock(&workers->lock);
    event_active(workers->at_once, EV_TIMEOUT, 0);
}

size_t workers_pending(const struct workers *workers)
{
    return workers->pending;
}

void workers_stop(struct workers *workers)
{
    pthread_mutex_lock(&workers->lock);
    workers->stop = true;
    pthread_cond_broadcast(&workers->posted);
    pthread_mutex_unlock(&workers->lock);
    for (size_t i = 0; i < workers->count; i++)
        pthread_join(workers->threads[i], NULL);
    finish_jobs(workers);
    if (workers->event)
        event_free(workers->event);
    if (workers->at_once)
        event_free(workers->at_once);
    if (workers->wake_event >= 0)
        close(workers->wake_event);
    pthread_cond_destroy(&workers->posted);
    pthread_mutex_destroy(&workers->lock);
    free(workers);
}
