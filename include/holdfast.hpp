/* holdfast.hpp - libholdfast for C++17 and later, header only: leases that move, locks that
 * std::unique_lock takes, durations of std::chrono, statuses as std::error_code.
 *
 *     holdfast::client locks("redis://db.example");
 *     holdfast::mutex seat(locks, "seat:7");
 *     std::lock_guard guard(seat);           // waits in the queue, renewed while it is held
 *     store(seat.token());                   // the database refuses an older token
 *
 * READ THIS FIRST
 * - A lease ends (see holdfast.h). A destructor cannot report that: check held() before work that
 *   must not be done twice, or call release(), which throws if the lease was lost.
 * - Leases point into their client: destroy them first. A client destroyed while another thread is
 *   inside one of its calls leaks, because freeing it would be worse.
 * - std::scoped_lock(a, b) takes two locks by trying, which gives up its places in the queues.
 *   client::acquire_all keeps them.
 * - Functions throw holdfast::error with the library's own text, unless they say otherwise. */
#ifndef HOLDFAST_HPP
#define HOLDFAST_HPP

#include <holdfast.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#if __cplusplus > 202002L && __has_include(<expected>)
#include <expected>
#endif

namespace holdfast
{

using std::chrono::milliseconds;

inline constexpr milliseconds forever{HF_FOREVER};
inline constexpr milliseconds wait_default{HF_WAIT_DEFAULT}; /* as URL or environment say */

/* ---- Errors ---- */

/* The statuses of holdfast.h, for comparison: `if (e.code() == holdfast::errc::BUSY)`. */
enum class errc {
#define HF_STATUS(name, number, exit_code, http, retry, text) name = (number),
#include <holdfast/status.def>
#undef HF_STATUS
};

inline const std::error_category &category() noexcept
{
    struct holdfast_category final : std::error_category {
        const char *name() const noexcept override { return "holdfast"; }
        std::string message(int status) const override
        {
            return hf_status_text(static_cast<hf_status>(status));
        }
    };
    static const holdfast_category only;

    return only;
}

inline std::error_code make_error_code(errc status) noexcept
{
    return {static_cast<int>(status), category()};
}

/* what() is the library's message: which thing failed, and what was wrong with it. */
class error : public std::system_error
{
  public:
    explicit error(hf_status status)
        : std::system_error(make_error_code(static_cast<errc>(status)), hf_error_text())
    {
    }

    hf_status status() const noexcept { return static_cast<hf_status>(code().value()); }
    bool retry() const noexcept { return hf_status_retry(status()); }
};

namespace detail
{
inline void check(hf_status status)
{
    if (status != HF_OK)
        throw error(status);
}
} // namespace detail

/* ---- Leases ---- */

/* A lease that was granted. The destructor releases it without waiting for the reply. A lease that
 * was moved from holds nothing: held() is false, token() is 0, left() is 0. */
class lease
{
  public:
    lease() noexcept = default;
    explicit lease(hf_lease *handle) noexcept : handle_(handle) {}
    lease(lease &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    lease &operator=(lease &&other) noexcept
    {
        lease previous(std::exchange(handle_, std::exchange(other.handle_, nullptr)));

        return *this;
    }
    lease(const lease &) = delete;
    lease &operator=(const lease &) = delete;
    ~lease() { hf_lease_free(handle_); }

    /* Returns true while the lease is held, as far as this process knows: one load, for inner
     * loops. */
    bool held() const noexcept { return handle_ && hf_lease_ok(handle_); }
    explicit operator bool() const noexcept { return held(); }
    /* The time that is certainly left; zero: none. */
    milliseconds left() const noexcept
    {
        return milliseconds(handle_ ? hf_lease_left_ms(handle_) : 0);
    }
    /* Rises with every grant of the name: the number by which a database refuses a late write. */
    std::uint64_t token() const noexcept { return handle_ ? hf_lease_token(handle_) : 0; }
    std::string name() const { return handle_ ? hf_lease_name(handle_) : ""; }
    /* Returns a descriptor that becomes readable when the lease is lost. The library closes it. */
    int fd() const noexcept { return handle_ ? hf_lease_fd(handle_) : -1; }

    /* At least `ttl` from now; zero: the lease's own ttl. Never shortens. */
    void extend(milliseconds ttl = {}) { detail::check(hf_extend(handle(), ttl.count())); }
    /* Makes the sole reader the writer, with a new token; throws errc::BUSY if there are other
     * readers. */
    void upgrade() { detail::check(hf_upgrade(handle())); }
    /* Makes the writer a reader, with the same token. */
    void downgrade() { detail::check(hf_downgrade(handle())); }

    /* Releases and waits for the reply. Throws errc::NOT_HELD if the lease had been lost before,
     * errc::IN_DOUBT if no reply came. The lease holds nothing afterwards, whatever happens. */
    void release()
    {
        lease last = std::move(*this);
        detail::check(hf_release(last.handle()));
    }

    /* The C handle, still owned by this lease. */
    hf_lease *native_handle() const noexcept { return handle_; }

  private:
    hf_lease *handle() const
    {
        if (!handle_)
            throw std::system_error(make_error_code(errc::NOT_HELD), "this lease holds nothing");
        return handle_;
    }

    hf_lease *handle_ = nullptr;
};

/* What to acquire. Only the name is needed. */
struct request {
    std::string name;
    hf_kind kind = HF_EXCLUSIVE;
    std::uint32_t units = 0;    /* semaphores: how many permits; 0: one */
    std::uint32_t capacity = 0; /* semaphores: how many there are */
    milliseconds ttl{0};        /* zero: as URL or environment say, else 30 s */
    milliseconds wait{0};       /* zero: fail at once if it is busy; or forever, wait_default */
    milliseconds max_hold{0};   /* zero: renewed without end */
    bool renew = true;          /* renewed in the background until it is released or lost */
    std::uint32_t flags = 0;    /* more of enum hf_flags */
    std::string owner{};        /* who holds, for reentrancy; empty: a new owner each time */
    std::string label{};        /* shown to others */
    std::string correlation_id{};
};

namespace detail
{
/* Refuses a text with a NUL inside: C would see the part before it, and two owners could become
 * one. */
inline const char *text(const std::string &s, const char *field)
{
    if (s.find('\0') != std::string::npos)
        throw std::system_error(make_error_code(errc::INVALID),
                                std::string(field) + ": must not have a NUL");
    return s.empty() ? nullptr : s.c_str();
}

/* The result points into the texts of `want`, so it is valid as long as `want`. */
inline hf_request as_c(const request &want)
{
    hf_request c{};

    c.size = sizeof c;
    c.name = want.name.data();
    c.name_len = want.name.size();
    c.kind = want.kind;
    c.units = want.units;
    c.capacity = want.capacity;
    c.ttl_ms = want.ttl.count();
    c.wait_ms = want.wait.count();
    c.max_hold_ms = want.max_hold.count();
    c.flags = want.flags | (want.renew ? static_cast<std::uint32_t>(HF_AUTO_RENEW) : 0u);
    c.owner = text(want.owner, "owner");
    c.label = text(want.label, "label");
    c.correlation_id = text(want.correlation_id, "correlation_id");
    return c;
}

inline bool is_busy(hf_status status)
{
    return status == HF_BUSY || status == HF_TIMEOUT;
}
} // namespace detail

/* ---- Clients ---- */

/* A connection to an engine. Its functions may be called from any thread. */
class client
{
  public:
    /* Opens $HOLDFAST_URL, else `local:`. */
    client() : client(nullptr) {}
    explicit client(const std::string &url) : client(url.c_str()) {}
    explicit client(const char *url, const hf_client_options *options = nullptr)
    {
        detail::check(hf_open(url, options, &handle_));
    }
    client(client &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    client &operator=(client &&other) noexcept
    {
        client previous(std::move(other));

        std::swap(handle_, previous.handle_);
        return *this;
    }
    client(const client &) = delete;
    client &operator=(const client &) = delete;
    /* Releases what is held, within a second. */
    ~client() { (void)hf_close(handle_, 1000); }

    /* Throws errc::BUSY if the name is busy and want.wait is zero, errc::TIMEOUT if want.wait has
     * passed without a grant. */
    [[nodiscard]] lease acquire(const request &want) const
    {
        hf_lease *handle = nullptr;
        detail::check(start(want, &handle));
        return lease(handle);
    }

    /* Returns an empty value if the lock is busy or the wait is over; throws for everything
     * else. */
    [[nodiscard]] std::optional<lease> try_acquire(const request &want) const
    {
        hf_lease *handle = nullptr;
        hf_status status = start(want, &handle);
        if (detail::is_busy(status))
            return std::nullopt;
        detail::check(status);
        return lease(handle);
    }

    /* Acquires several names, all or none, without deadlock; the leases are in the order of the
     * requests. If one is lost, all are. */
    [[nodiscard]] std::vector<lease> acquire_all(const std::vector<request> &wants,
                                                 milliseconds wait = forever) const
    {
        std::vector<hf_request> all;
        std::vector<const hf_request *> pointers;
        std::vector<hf_lease *> handles(wants.size());
        std::vector<lease> leases;

        all.reserve(wants.size());
        pointers.reserve(wants.size());
        leases.reserve(wants.size());
        for (const request &want : wants) {
            all.push_back(detail::as_c(want));
            pointers.push_back(&all.back());
        }

        detail::check(hf_acquire_many(handle_, pointers.data(), pointers.size(), wait.count(),
                                      handles.data()));
        for (hf_lease *handle : handles)
            leases.emplace_back(handle);
        return leases;
    }

#ifdef __cpp_lib_expected
    /* Throws nothing that the library reports; hf_error_text() has the words. */
    [[nodiscard]] std::expected<lease, std::error_code> acquire_or_error(const request &want) const
    {
        hf_lease *handle = nullptr;
        hf_status status = start(want, &handle);
        if (status != HF_OK)
            return std::unexpected(make_error_code(static_cast<errc>(status)));
        return lease(handle);
    }
#endif

    /* Closes, and throws what the destructor cannot say: errc::IN_DOUBT if something was not
     * answered in time (the client is closed), errc::TIMEOUT if another thread is still inside a
     * call (the client is open; call again). All leases must have been destroyed. */
    void close(milliseconds timeout = milliseconds(1000))
    {
        hf_status status = hf_close(handle_, timeout.count());
        if (status != HF_TIMEOUT)
            handle_ = nullptr;
        detail::check(status);
    }

    /* The C handle, still owned by this client. */
    hf_client *native_handle() const noexcept
    {
        return handle_;
    }

  private:
    hf_status start(const request &want, hf_lease **handle) const
    {
        hf_request c = detail::as_c(want);
        return hf_acquire(handle_, &c, handle);
    }

    hf_client *handle_ = nullptr;
};

/* ---- Locks for std::unique_lock and std::shared_lock ---- */

namespace detail
{
/* The leases of one lock, by the thread that took each. A lock that was lost may be granted to
 * another thread of this process while the first still believes that it holds: unlock() must end
 * the lease of its own thread, never that of the other. */
class lease_by_thread
{
  public:
    bool has() const
    {
        std::lock_guard<std::mutex> guard(lock_);
        const lease *mine = find();
        return mine && mine->held();
    }

    void put(lease &&granted)
    {
        std::lock_guard<std::mutex> guard(lock_);
        if (lease *mine = find())
            *mine = std::move(granted);
        else
            leases_.emplace_back(std::this_thread::get_id(), std::move(granted));
    }

    /* Takes the lease out of the table. It is released when the returned value is destroyed,
     * without the table's mutex. */
    lease take() noexcept
    {
        std::lock_guard<std::mutex> guard(lock_);
        for (auto entry = leases_.begin(); entry != leases_.end(); ++entry)
            if (entry->first == std::this_thread::get_id()) {
                lease mine = std::move(entry->second);
                leases_.erase(entry);
                return mine;
            }
        return lease();
    }

    template <class Result, class Function> Result of_mine(Function function) const
    {
        std::lock_guard<std::mutex> guard(lock_);
        const lease *mine = find();
        return mine ? function(*mine) : Result{};
    }

  private:
    const lease *find() const
    {
        for (const auto &entry : leases_)
            if (entry.first == std::this_thread::get_id())
                return &entry.second;
        return nullptr;
    }
    lease *find() { return const_cast<lease *>(std::as_const(*this).find()); }

    mutable std::mutex lock_;
    std::vector<std::pair<std::thread::id, lease>> leases_;
};

/* What holdfast::mutex and holdfast::shared_mutex have in common. */
class named_lock
{
  public:
    named_lock(const named_lock &) = delete;
    named_lock &operator=(const named_lock &) = delete;

    /* These three are about the lease that the calling thread has: false, 0 and zero if it has
     * none. */
    bool held() const
    {
        return leases_.of_mine<bool>([](const lease &mine) { return mine.held(); });
    }
    std::uint64_t token() const
    {
        return leases_.of_mine<std::uint64_t>([](const lease &mine) { return mine.token(); });
    }
    milliseconds left() const
    {
        return leases_.of_mine<milliseconds>([](const lease &mine) { return mine.left(); });
    }

  protected:
    named_lock(const client &from, std::string name, milliseconds ttl) : client_(from)
    {
        want_.name = std::move(name);
        want_.ttl = ttl;
    }
    ~named_lock() = default;

    bool take(hf_kind kind, milliseconds wait)
    {
        if (leases_.has())
            throw std::system_error(std::make_error_code(std::errc::resource_deadlock_would_occur),
                                    want_.name);

        request want = want_;
        want.kind = kind;
        want.wait = wait;
        std::optional<lease> granted = client_.try_acquire(want);
        if (granted)
            leases_.put(std::move(*granted));
        return granted.has_value();
    }

    void take_surely(hf_kind kind)
    {
        if (!take(kind, forever))
            throw error(HF_BUSY);
    }

    template <class Rep, class Period>
    static milliseconds rounded(const std::chrono::duration<Rep, Period> &length)
    {
        constexpr milliseconds longest{std::int64_t{1} << 40}; /* 34 years, what hf_acquire takes */
        using exact = std::chrono::duration<double, std::milli>;
        if (exact(length) >= exact(longest)) /* hours::max() and min() would overflow below */
            return longest;
        if (exact(length) <= exact(0))
            return milliseconds(0);
        return std::chrono::ceil<milliseconds>(length);
    }

    /* Returns zero if `end` is past. Without this check, min() less the time of now would overflow,
     * and could wait for ever. */
    template <class Clock, class Duration>
    static auto until(const std::chrono::time_point<Clock, Duration> &end)
    {
        const auto now = Clock::now();
        return end > now ? end - now : end - end;
    }

    void give() noexcept { leases_.take(); }

  private:
    const client &client_;
    request want_;
    lease_by_thread leases_;
};
} // namespace detail

/* An exclusive lock, TimedLockable. The client must outlive it. Each thread that locks it must
 * unlock it; a thread that holds it and locks it again gets resource_deadlock_would_occur. */
class mutex : public detail::named_lock
{
  public:
    mutex(const client &from, std::string name, milliseconds ttl = {})
        : named_lock(from, std::move(name), ttl)
    {
    }

    void lock() { take_surely(HF_EXCLUSIVE); }
    [[nodiscard]] bool try_lock() { return take(HF_EXCLUSIVE, milliseconds(0)); }
    template <class Rep, class Period>
    [[nodiscard]] bool try_lock_for(const std::chrono::duration<Rep, Period> &length)
    {
        return take(HF_EXCLUSIVE, rounded(length));
    }
    template <class Clock, class Duration>
    [[nodiscard]] bool try_lock_until(const std::chrono::time_point<Clock, Duration> &end)
    {
        return try_lock_for(until(end));
    }
    void unlock() noexcept { give(); } /* does not say that the lease was lost: see held() */
};

/* Readers and one writer, SharedTimedLockable. The client must outlive it. */
class shared_mutex : public detail::named_lock
{
  public:
    shared_mutex(const client &from, std::string name, milliseconds ttl = {})
        : named_lock(from, std::move(name), ttl)
    {
    }

    void lock() { take_surely(HF_WRITE); }
    [[nodiscard]] bool try_lock() { return take(HF_WRITE, milliseconds(0)); }
    template <class Rep, class Period>
    [[nodiscard]] bool try_lock_for(const std::chrono::duration<Rep, Period> &length)
    {
        return take(HF_WRITE, rounded(length));
    }
    template <class Clock, class Duration>
    [[nodiscard]] bool try_lock_until(const std::chrono::time_point<Clock, Duration> &end)
    {
        return try_lock_for(until(end));
    }
    void unlock() noexcept { give(); }

    void lock_shared() { take_surely(HF_READ); }
    [[nodiscard]] bool try_lock_shared() { return take(HF_READ, milliseconds(0)); }
    template <class Rep, class Period>
    [[nodiscard]] bool try_lock_shared_for(const std::chrono::duration<Rep, Period> &length)
    {
        return take(HF_READ, rounded(length));
    }
    template <class Clock, class Duration>
    [[nodiscard]] bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration> &end)
    {
        return try_lock_shared_for(until(end));
    }
    void unlock_shared() noexcept { give(); }
};

} // namespace holdfast

template <> struct std::is_error_code_enum<holdfast::errc> : std::true_type {
};

#endif
