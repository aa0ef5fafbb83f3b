/* lockable.cpp - what holdfast.hpp promises, tried by a program of another: prints a line a check.
 *
 *     lockable URL */
#include <holdfast.hpp>

#include <atomic>
#include <cstdio>
#include <future>
#include <mutex>
#include <shared_mutex>
#include <type_traits>

using namespace std::chrono_literals;
using holdfast::errc;

static int failures;

static void check(const char *sentence, bool is_true)
{
    std::printf("%s - %s\n", is_true ? "ok" : "not ok", sentence);
    failures += !is_true;
}

template <class Function> static std::error_code thrown(Function function)
{
    try {
        function();
    } catch (const std::system_error &e) {
        return e.code();
    }
    return {};
}

template <class Function> static auto elsewhere(Function function)
{
    return std::async(std::launch::async, function).get();
}

static_assert(!std::is_copy_constructible_v<holdfast::lease>);
static_assert(std::is_nothrow_move_constructible_v<holdfast::lease>);
static_assert(std::is_nothrow_move_assignable_v<holdfast::lease>);
static_assert(!std::is_copy_constructible_v<holdfast::client>);
static_assert(std::is_nothrow_move_constructible_v<holdfast::client>);
static_assert(std::is_error_code_enum_v<errc>);

static holdfast::request named(const char *name)
{
    holdfast::request want;
    want.name = name;
    return want;
}

static void leases(const holdfast::client &locks)
{
    holdfast::lease first = locks.acquire(named("a"));
    std::uint64_t token = first.token();
    check("a lease is held and has a name, a token and time",
          first.held() && first.name() == "a" && token > 0 && first.left() > 1s);
    check("a busy lock is an error",
          thrown([&] { (void)locks.acquire(named("a")); }) == errc::BUSY);
    check("or nothing, for one that tries", !locks.try_acquire(named("a")));

    holdfast::request patient = named("a");
    patient.wait = 30ms;
    check("a wait that is over is another error",
          thrown([&] { (void)locks.acquire(patient); }) == errc::TIMEOUT);

    holdfast::lease second = std::move(first);
    check("a lease moves", second.held() && second.token() == token);
    check("and leaves nothing behind", !first.held() && first.token() == 0 && first.left() == 0ms);
    second.extend(20s);
    check("an extend makes it longer", second.left() > 15s);
    check("what was moved from cannot be released",
          thrown([&] { first.release(); }) == errc::NOT_HELD);
    second.release();
    check("a release frees it", !second.held() && locks.try_acquire(named("a")).has_value());

    second = locks.acquire(named("a"));
    check("tokens rise", second.token() > token);
    second = locks.acquire(named("b"));
    check("an assignment releases what it replaces", locks.try_acquire(named("a")).has_value());
    second = holdfast::lease();
    check("so does an empty lease", locks.try_acquire(named("b")).has_value());
}

static void loss(const holdfast::client &locks)
{
    holdfast::lease lost = locks.acquire(named("a"));
    holdfast::request want = named("a");
    check("an operator ends the hold",
          hf_break(locks.native_handle(), "a", lost.token(), "test") == HF_OK);
    std::error_code why = thrown([&] { lost.release(); });
    check("a release says that it was lost", why == errc::NOT_HELD || why == errc::LOST);
    check("and has ended the lease all the same", !lost.held());
    check("the next one holds", locks.try_acquire(want).has_value());
}

static void several(const holdfast::client &locks)
{
    {
        std::vector<holdfast::lease> both = locks.acquire_all({named("y"), named("x")});
        check("several names, in the order of the requests",
              both.size() == 2 && both[0].name() == "y" && both[1].name() == "x");
        check("all of them are held",
              !locks.try_acquire(named("x")) && !locks.try_acquire(named("y")));
    }
    holdfast::lease x = locks.acquire(named("x"));
    std::error_code why = thrown([&] { (void)locks.acquire_all({named("w"), named("x")}, 0ms); });
    check("all or none", why == errc::BUSY && locks.try_acquire(named("w")).has_value());
}

static void mutexes(const holdfast::client &locks)
{
    holdfast::mutex a(locks, "a"), b(locks, "b");
    {
        std::scoped_lock both(a, b);
        check("scoped_lock takes two", a.held() && b.held() && a.token() > 0 && a.left() > 0ms);
        check("another thread does not get it", !elsewhere([&] { return a.try_lock(); }));
        check("nor by waiting", !elsewhere([&] { return a.try_lock_for(20ms); }));
        check("a thread that holds it cannot wait for itself",
              thrown([&] { a.lock(); }) ==
                  std::make_error_code(std::errc::resource_deadlock_would_occur));
        check("held() is of the calling thread", !elsewhere([&] { return a.held(); }));
    }
    check("both are free behind the block", !a.held() && a.try_lock());
    a.unlock();
    check("a time without end is a wait", a.try_lock_for(std::chrono::hours::max()));
    a.unlock();
    check("so is a moment that never comes",
          a.try_lock_until(std::chrono::steady_clock::time_point::max()));
    a.unlock();
    check("a time that has passed is a try",
          a.try_lock_until(std::chrono::steady_clock::now() - 1h));
    check("a time before all others is one, too", !elsewhere([&] {
              return a.try_lock_until(std::chrono::steady_clock::time_point::min()) ||
                     a.try_lock_for(std::chrono::hours::min());
          }));

    std::atomic<bool> has_it{false};
    auto waiter = std::async(std::launch::async, [&] {
        std::lock_guard<holdfast::mutex> guard(a);
        has_it = true;
    });
    std::this_thread::sleep_for(50ms);
    check("lock() waits", !has_it);
    a.unlock();
    waiter.get();
    check("until it is unlocked", has_it);
}

static void lost_mutex(const holdfast::client &locks)
{
    holdfast::mutex a(locks, "a");
    a.lock();
    check("an operator breaks a locked mutex",
          hf_break(locks.native_handle(), "a", a.token(), "test") == HF_OK);

    std::promise<void> locked, done;
    auto other = std::async(std::launch::async, [&] {
        std::lock_guard<holdfast::mutex> guard(a);
        locked.set_value();
        done.get_future().wait();
        return a.held();
    });
    locked.get_future().wait();
    a.unlock();
    done.set_value();
    check("the unlock of a loser leaves the next holder alone", other.get());
}

static void shared(const holdfast::client &locks)
{
    holdfast::shared_mutex book(locks, "book");
    {
        std::shared_lock<holdfast::shared_mutex> reader(book);
        check("a reader reads", book.held());
        check("another one reads beside it", elsewhere([&] {
                  bool got = book.try_lock_shared();
                  book.unlock_shared();
                  return got;
              }));
        check("and nobody writes", !elsewhere([&] { return book.try_lock(); }));
    }
    std::unique_lock<holdfast::shared_mutex> writer(book, 100ms);
    check("a writer writes", writer.owns_lock());
    check("and nobody reads", !elsewhere([&] { return book.try_lock_shared_for(10ms); }));
}

static void crowd(const holdfast::client &locks)
{
    holdfast::mutex turn(locks, "turn");
    std::atomic<int> inside{0}, overlaps{0}, turns{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++)
        threads.emplace_back([&] {
            for (int n = 0; n < 50; n++) {
                std::lock_guard<holdfast::mutex> guard(turn);
                overlaps += inside++ != 0;
                turns++;
                inside--;
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    check("eight threads take fifty turns each, one at a time", turns == 400 && overlaps == 0);
}

static void errors(const holdfast::client &locks)
{
    try {
        holdfast::client nowhere("nosuch://host");
        check("an unknown engine is an error", false);
    } catch (const holdfast::error &e) {
        check("an unknown engine is an error that names it",
              e.status() == HF_CONFIG && std::string(e.what()).find("nosuch") != std::string::npos);
        check("which no retry heals", !e.retry());
    }
    check("an empty name is refused",
          thrown([&] { (void)locks.acquire(named("")); }) == errc::INVALID);
    holdfast::request owned = named("owned");
    owned.owner = std::string("me\0too", 6);
    check("so is an owner whom C would take for another",
          thrown([&] { (void)locks.acquire(owned); }) == errc::INVALID);
#ifdef __cpp_lib_expected
    holdfast::lease held = locks.acquire(named("e"));
    auto outcome = locks.acquire_or_error(named("e"));
    check("expected has the error", !outcome && outcome.error() == errc::BUSY);
    check("or the lease", locks.acquire_or_error(named("f")).has_value());
#endif
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 64;
    holdfast::client opened(argv[1]), locks(std::move(opened)), &itself = locks;
    locks = std::move(itself);
    check("a client that is moved to itself stays open", locks.native_handle());

    leases(locks);
    loss(locks);
    several(locks);
    mutexes(locks);
    lost_mutex(locks);
    shared(locks);
    crowd(locks);
    errors(locks);
    locks.close();
    check("a closed client is empty", !locks.native_handle());
    return failures ? 1 : 0;
}
