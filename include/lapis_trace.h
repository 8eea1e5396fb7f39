/* lapis_trace.h: lets a C or C++ program write a trace of what it does to persistent memory, in the
 * format that `lapis crash --trace FILE` checks (version 1; the bytes are described in
 * crates/device/src/trace/trace_file/mod.rs).
 *
 * In exactly one source file:
 *
 *     #define LAPIS_TRACE_IMPLEMENTATION
 *     #include "lapis_trace.h"
 *
 * and in the others only the include. C99 or later, or C++11 or later, with GCC or Clang (it uses
 * their __atomic builtins and __thread). No other library is needed. With LAPIS_TRACE_OFF defined,
 * every macro becomes nothing (LAPIS_ASSIGN: only the assignment).
 *
 * The macros record; they do not flush. Put them beside the instructions (or in place of them: to
 * be checked, a program may run on ordinary memory, with no flush at all).
 *
 *     LAPIS_TRACE_BEGIN(path, base, bytes)  begins a trace of [base, base + bytes), up to 128
 *                                           GiB; base must be aligned to 64. What the memory holds is saved, and
 *                                           counts as durable. 0, or an errno.
 *     LAPIS_TRACE_END()                     ends it. 0, or the errno of the first failed write.
 *     LAPIS_TRACE_SYNC()                    hands what has been recorded to the operating system:
 *                                           a process killed later leaves at least that.
 *
 *     LAPIS_OP_BEGIN(n), LAPIS_OP_END(n)    the calling thread begins operation n, and
 *                                           acknowledges it: from there on it must survive.
 *     LAPIS_NOTE(n)                         anything else
 *
 *     LAPIS_STORE(ptr, bytes)               these bytes have been stored; plain stores, which the
 *                                           compiler may reorder
 *     LAPIS_STORE_ORDERED(ptr, bytes)       the same with release ordering: 1, 2, 4 or 8 bytes,
 *                                           naturally aligned
 *     LAPIS_ASSIGN(lvalue, value)           assigns, and records a plain store; evaluates both once
 *     LAPIS_LOCKED(ptr, bytes)              stored by a locked instruction (a compare-exchange that
 *                                           succeeded, an exchange, an add)
 *     LAPIS_NT_STORE(ptr, bytes)            stored past the caches (movnt*)
 *
 *     LAPIS_FLUSH(ptr, bytes)               clwb of every line of the range
 *     LAPIS_CLFLUSHOPT(ptr, bytes)
 *     LAPIS_CLFLUSH(ptr, bytes)
 *     LAPIS_FENCE()                         sfence or mfence
 *     LAPIS_PERSIST(ptr, bytes)             LAPIS_FLUSH, LAPIS_FENCE
 *
 *     LAPIS_ASSERT_DURABLE(ptr, bytes)      all stores to the range so far are durable
 *     LAPIS_ASSERT_ORDERED(a, a_bytes, b, b_bytes)
 *                                           no power cut leaves the last stores to b without the
 *                                           last stores to a
 *     LAPIS_VOLATILE(ptr, bytes)            nothing rests on this range (a lock): it may be lost
 *
 *     LAPIS_STORE_AT(ptr, bytes, file, line), and so for every macro that records: the same, of this
 *                                           place in the source instead of the macro's own. For wrappers
 *                                           whose caller matters: a store() of all others would be one line.
 *                                           `file` must stay where it is (__FILE__ of the caller, or
 *                                           std::source_location's file_name()).
 *
 *     LAPIS_WORKER(n)                       the calling thread is worker n, 0 to 254. Without it
 *                                           threads are numbered as they come.
 *
 * Bytes outside of the region are none of a trace's business: they are left out.
 *
 * Threads. Every macro may be used by several threads at once: one spinlock makes each record whole
 * and puts the records in one order. That order is taken for the order in which stores became
 * visible. LAPIS_ASSIGN stores under the lock, so it is exact; after other stores, record before
 * another thread can see them (inside the lock or before the publishing store), else the trace may
 * tell another order than the one that was. A macro's arguments are evaluated under the lock: they
 * may record in turn, but must not wait for another thread that does. Begin and end the trace while no other thread uses it.
 * A child process must not go on with the trace of its parent.
 */

#ifndef LAPIS_TRACE_H
#define LAPIS_TRACE_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A place in the source, known to the trace once it has been used in it. */
typedef struct lapis_trace_site {
    const char *file;
    uint32_t line;
    uint32_t trace;    /* number of the trace that `number` belongs to */
    uint32_t number;
} lapis_trace_site;

int lapis_trace_begin(const char *path, const void *base, uint64_t bytes);
int lapis_trace_end(void);
int lapis_trace_sync(void);
void lapis_trace_worker(unsigned worker);
void lapis_trace_lock(void);
void lapis_trace_unlock(void);
/* The caller holds the lock. */
void lapis_trace_store(int tag, const void *at, uint64_t bytes, lapis_trace_site *site);
void lapis_trace_flush(int tag, const void *at, uint64_t bytes, lapis_trace_site *site);
void lapis_trace_number(int tag, uint64_t number, lapis_trace_site *site);
void lapis_trace_fence(lapis_trace_site *site);
void lapis_trace_range(int tag, const void *at, uint64_t bytes, lapis_trace_site *site);
void lapis_trace_ordered(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes,
                         lapis_trace_site *site);
lapis_trace_site *lapis_trace_site_at(const char *file, uint32_t line);

#ifdef __cplusplus
}
#endif

#ifdef LAPIS_TRACE_OFF

/* A function, so that nobody need look at what it returns. */
static inline int lapis_trace_off_(const char *path, const void *base) {
    (void)path;
    (void)base;
    return 0;
}

#define LAPIS_TRACE_BEGIN(path, base, bytes) lapis_trace_off_((path), (base))
#define LAPIS_TRACE_END() lapis_trace_off_("", "")
#define LAPIS_TRACE_SYNC() lapis_trace_off_("", "")
#define LAPIS_WORKER(n) ((void)0)
#define LAPIS_TRACE_AT_(file, line, action) ((void)0)
#define LAPIS_TRACE_HERE_(action) ((void)0)
#define LAPIS_ASSIGN(lvalue, value) ((void)((lvalue) = (value)))
#define LAPIS_ASSIGN_AT(lvalue, value, file, line) LAPIS_ASSIGN(lvalue, value)

#else

/* Runs `action` under the lock, with a place in the source as `lapis_site_`: this one, or another. */
#define LAPIS_TRACE_HERE_(action)                                                               \
    do {                                                                                        \
        static lapis_trace_site lapis_place_ = {__FILE__, (uint32_t)__LINE__, 0, 0};            \
        lapis_trace_site *lapis_site_ = &lapis_place_;                                          \
        lapis_trace_lock();                                                                     \
        action;                                                                                 \
        lapis_trace_unlock();                                                                   \
    } while (0)
#define LAPIS_TRACE_AT_(file, line, action)                                                     \
    do {                                                                                        \
        lapis_trace_site *lapis_site_;                                                          \
        lapis_trace_lock();                                                                     \
        lapis_site_ = lapis_trace_site_at((file), (uint32_t)(line));                            \
        action;                                                                                 \
        lapis_trace_unlock();                                                                   \
    } while (0)

#define LAPIS_TRACE_BEGIN(path, base, bytes) lapis_trace_begin((path), (base), (uint64_t)(bytes))
#define LAPIS_TRACE_END() lapis_trace_end()
#define LAPIS_TRACE_SYNC() lapis_trace_sync()
#define LAPIS_WORKER(n) lapis_trace_worker((unsigned)(n))

#define LAPIS_DO_NUMBER_(tag, n) lapis_trace_number(tag, (uint64_t)(n), lapis_site_)
#define LAPIS_DO_STORE_(tag, ptr, bytes)                                                        \
    lapis_trace_store(tag, (const void *)(ptr), (uint64_t)(bytes), lapis_site_)
#define LAPIS_DO_ASSIGN_(lvalue, value)                                                         \
    __typeof__(&(lvalue)) lapis_at_ = &(lvalue);                                                \
    *lapis_at_ = (value);                                                                       \
    LAPIS_DO_STORE_(0x10, lapis_at_, sizeof(*lapis_at_))
#define LAPIS_DO_FLUSH_(tag, ptr, bytes)                                                        \
    lapis_trace_flush(tag, (const void *)(ptr), (uint64_t)(bytes), lapis_site_)
#define LAPIS_DO_FENCE_() lapis_trace_fence(lapis_site_)
#define LAPIS_DO_PERSIST_(ptr, bytes)                                                           \
    LAPIS_DO_FLUSH_(0x20, ptr, bytes);                                                          \
    LAPIS_DO_FENCE_()
#define LAPIS_DO_RANGE_(tag, ptr, bytes)                                                        \
    lapis_trace_range(tag, (const void *)(ptr), (uint64_t)(bytes), lapis_site_)
#define LAPIS_DO_ORDERED_(a, a_bytes, b, b_bytes)                                               \
    lapis_trace_ordered((const void *)(a), (uint64_t)(a_bytes), (const void *)(b),              \
                        (uint64_t)(b_bytes), lapis_site_)

#define LAPIS_ASSIGN(lvalue, value) LAPIS_TRACE_HERE_(LAPIS_DO_ASSIGN_(lvalue, value))
#define LAPIS_ASSIGN_AT(lvalue, value, file, line)                                              \
    LAPIS_TRACE_AT_(file, line, LAPIS_DO_ASSIGN_(lvalue, value))

#endif /* LAPIS_TRACE_OFF */

#define LAPIS_OP_BEGIN(n) LAPIS_TRACE_HERE_(LAPIS_DO_NUMBER_(0x30, n))
#define LAPIS_OP_BEGIN_AT(n, file, line) LAPIS_TRACE_AT_(file, line, LAPIS_DO_NUMBER_(0x30, n))
#define LAPIS_OP_END(n) LAPIS_TRACE_HERE_(LAPIS_DO_NUMBER_(0x31, n))
#define LAPIS_OP_END_AT(n, file, line) LAPIS_TRACE_AT_(file, line, LAPIS_DO_NUMBER_(0x31, n))
#define LAPIS_NOTE(n) LAPIS_TRACE_HERE_(LAPIS_DO_NUMBER_(0x32, n))
#define LAPIS_NOTE_AT(n, file, line) LAPIS_TRACE_AT_(file, line, LAPIS_DO_NUMBER_(0x32, n))

#define LAPIS_STORE(ptr, bytes) LAPIS_TRACE_HERE_(LAPIS_DO_STORE_(0x10, ptr, bytes))
#define LAPIS_STORE_AT(ptr, bytes, file, line)                                                  \
    LAPIS_TRACE_AT_(file, line, LAPIS_DO_STORE_(0x10, ptr, bytes))
#define LAPIS_STORE_ORDERED(ptr, bytes) LAPIS_TRACE_HERE_(LAPIS_DO_STORE_(0x11, ptr, bytes))
#define LAPIS_STORE_ORDERED_AT(ptr, bytes, file, line)                                          \
    LAPIS_TRACE_AT_(file, line, LAPIS_DO_STORE_(0x11, ptr, bytes))
#define LAPIS_LOCKED(ptr, bytes) LAPIS_TRACE_HERE_(LAPIS_DO_STORE_(0x12, ptr, bytes))
#define LAPIS_LOCKED_AT(ptr, bytes, file, line)                                                 \
    LAPIS_TRACE_AT_(file, line, LAPIS_DO_STORE_(0x12, ptr, bytes))
#define LAPIS_NT_STORE(ptr, bytes) LAPIS_TRACE_HERE_(LAPIS_DO_STORE_(0x13, ptr, bytes))
#define LAPIS_NT_STORE_AT(ptr, bytes, file, line)                                               \
    LAPIS_TRACE_AT_(file, line, LAPIS_DO_STORE_(0x13, ptr, bytes))

#define LAPIS_FLUSH(ptr, bytes) LAPIS_TRACE_HERE_(LAPIS_DO_FLUSH_(0x20, ptr, bytes))
#define LAPIS_FLUSH_AT(ptr, bytes, file, line)                                                  \
    LAPIS_TRACE_AT_(file, line, LAPIS_DO_FLUSH_(0x20, ptr, bytes))
#define LAPIS_CLFLUSHOPT(ptr, bytes) LAPIS_TRACE_HERE_(LAPIS_DO_FLUSH_(0x21, ptr, bytes))
#define LAPIS_CLFLUSHOPT_AT(ptr, bytes, file, line)                                             \
    LAPIS_TRACE_AT_(file, line, LAPIS_DO_FLUSH_(0x21, ptr, bytes))
#define LAPIS_CLFLUSH(ptr, bytes) LAPIS_TRACE_HERE_(LAPIS_DO_FLUSH_(0x22, ptr, bytes))
#define LAPIS_CLFLUSH_AT(ptr, bytes, file, line)                                                \
    LAPIS_TRACE_AT_(file, line, LAPIS_DO_FLUSH_(0x22, ptr, bytes))
#define LAPIS_FENCE() LAPIS_TRACE_HERE_(LAPIS_DO_FENCE_())
#define LAPIS_FENCE_AT(file, line) LAPIS_TRACE_AT_(file, line, LAPIS_DO_FENCE_())
#define LAPIS_PERSIST(ptr, bytes) LAPIS_TRACE_HERE_(LAPIS_DO_PERSIST_(ptr, bytes))
#define LAPIS_PERSIST_AT(ptr, bytes, file, line)                                                \
    LAPIS_TRACE_AT_(file, line, LAPIS_DO_PERSIST_(ptr, bytes))

#define LAPIS_ASSERT_DURABLE(ptr, bytes) LAPIS_TRACE_HERE_(LAPIS_DO_RANGE_(0x40, ptr, bytes))
#define LAPIS_ASSERT_DURABLE_AT(ptr, bytes, file, line)                                         \
    LAPIS_TRACE_AT_(file, line, LAPIS_DO_RANGE_(0x40, ptr, bytes))
#define LAPIS_VOLATILE(ptr, bytes) LAPIS_TRACE_HERE_(LAPIS_DO_RANGE_(0x42, ptr, bytes))
#define LAPIS_VOLATILE_AT(ptr, bytes, file, line)                                               \
    LAPIS_TRACE_AT_(file, line, LAPIS_DO_RANGE_(0x42, ptr, bytes))
#define LAPIS_ASSERT_ORDERED(a, a_bytes, b, b_bytes)                                            \
    LAPIS_TRACE_HERE_(LAPIS_DO_ORDERED_(a, a_bytes, b, b_bytes))
#define LAPIS_ASSERT_ORDERED_AT(a, a_bytes, b, b_bytes, file, line)                             \
    LAPIS_TRACE_AT_(file, line, LAPIS_DO_ORDERED_(a, a_bytes, b, b_bytes))


#endif /* LAPIS_TRACE_H */

#if defined(LAPIS_TRACE_IMPLEMENTATION) && !defined(LAPIS_TRACE_OFF) &&                         \
    !defined(LAPIS_TRACE_IMPLEMENTED)
#define LAPIS_TRACE_IMPLEMENTED

#include <errno.h>

enum {
    LAPIS_TRACE_LINE_BYTES = 64,
    LAPIS_TRACE_STORE_BYTES = 4096, /* of one record */
    LAPIS_TRACE_FLUSH_LINES = 16,   /* of one record */
    LAPIS_TRACE_NAME_BYTES = 1024,
    LAPIS_TRACE_SITES = 65535,
    LAPIS_TRACE_SITES_AT = 8192, /* of those, places that are known when the program runs */
    LAPIS_TRACE_BLOCK_BYTES = 8192, /* a block is written out when it has so many */
    /* The longest record, and the records that introduce its place. */
    LAPIS_TRACE_RECORD_BYTES = LAPIS_TRACE_STORE_BYTES + LAPIS_TRACE_NAME_BYTES + 128
};

static struct {
    FILE *file;
    const unsigned char *base;
    uint64_t bytes;
    uint64_t previous;  /* the last offset coded as a difference */
    uint64_t records;
    uint32_t trace;     /* number of this trace in the process */
    uint32_t blocks;
    uint32_t files;
    uint32_t sites;
    uint32_t payload_bytes;
    int error;          /* errno of the first failed write */
    char last_file[LAPIS_TRACE_NAME_BYTES + 1];
    uint32_t crc_table[256];
    /* Room for the block's header, and for one record more than a block should have. */
    unsigned char block[16 + LAPIS_TRACE_BLOCK_BYTES + LAPIS_TRACE_RECORD_BYTES];
} lapis_trace_;

static unsigned char lapis_trace_spinlock_;
static unsigned lapis_trace_next_worker_;
/* The worker that the thread is, plus one. */
static __thread unsigned lapis_trace_worker_;
/* How often the thread has taken the lock: what is stored may be computed by what records. */
static __thread unsigned lapis_trace_depth_;

void lapis_trace_lock(void) {
    if (lapis_trace_depth_++ > 0) {
        return;
    }
    while (__atomic_test_and_set(&lapis_trace_spinlock_, __ATOMIC_ACQUIRE)) {
        while (__atomic_load_n(&lapis_trace_spinlock_, __ATOMIC_RELAXED)) {
        }
    }
}

void lapis_trace_unlock(void) {
    if (--lapis_trace_depth_ > 0) {
        return;
    }
    __atomic_clear(&lapis_trace_spinlock_, __ATOMIC_RELEASE);
}

void lapis_trace_worker(unsigned worker) {
    lapis_trace_worker_ = worker % 255 + 1;
}

static void lapis_trace_put_u32_(unsigned char *at, uint32_t value) {
    int index;
    for (index = 0; index < 4; index++) {
        at[index] = (unsigned char)(value >> (8 * index));
    }
}

static void lapis_trace_put_u64_(unsigned char *at, uint64_t value) {
    lapis_trace_put_u32_(at, (uint32_t)value);
    lapis_trace_put_u32_(at + 4, (uint32_t)(value >> 32));
}

/* CRC-32C, continued from `crc` (0 at first). */
static uint32_t lapis_trace_crc_(uint32_t crc, const unsigned char *bytes, size_t count) {
    size_t index;
    crc = ~crc;
    for (index = 0; index < count; index++) {
        crc = (crc >> 8) ^ lapis_trace_.crc_table[(crc ^ bytes[index]) & 255];
    }
    return ~crc;
}

static void lapis_trace_write_block_(void) {
    unsigned char *block = lapis_trace_.block;
    uint32_t bytes = lapis_trace_.payload_bytes;
    uint32_t crc;
    if (bytes == 0) {
        return;
    }
    memcpy(block, "LTBK", 4);
    lapis_trace_put_u32_(block + 4, bytes);
    lapis_trace_put_u32_(block + 8, lapis_trace_.blocks);
    crc = lapis_trace_crc_(0, block, 12);
    crc = lapis_trace_crc_(crc, block + 16, bytes);
    lapis_trace_put_u32_(block + 12, crc);
    if (lapis_trace_.error == 0 &&
        (fwrite(block, 1, 16 + (size_t)bytes, lapis_trace_.file) != 16 + (size_t)bytes ||
         fflush(lapis_trace_.file) != 0)) {
        lapis_trace_.error = errno != 0 ? errno : EIO;
    }
    lapis_trace_.blocks++;
    lapis_trace_.payload_bytes = 0;
    lapis_trace_.previous = 0;
}

static void lapis_trace_byte_(unsigned value) {
    lapis_trace_.block[16 + lapis_trace_.payload_bytes++] = (unsigned char)value;
}

static void lapis_trace_varint_(uint64_t value) {
    while (value >= 128) {
        lapis_trace_byte_((unsigned)(value & 127) | 128);
        value >>= 7;
    }
    lapis_trace_byte_((unsigned)value);
}

static void lapis_trace_delta_(uint64_t value) {
    uint64_t difference = value - lapis_trace_.previous;
    uint64_t sign = difference >> 63;
    lapis_trace_varint_((difference << 1) ^ (0 - sign));
    lapis_trace_.previous = value;
}

static void lapis_trace_bytes_(const void *bytes, size_t count) {
    memcpy(lapis_trace_.block + 16 + lapis_trace_.payload_bytes, bytes, count);
    lapis_trace_.payload_bytes += (uint32_t)count;
}

/* Makes room for a record and what introduces its place. */
static void lapis_trace_room_(void) {
    if (lapis_trace_.payload_bytes >= LAPIS_TRACE_BLOCK_BYTES) {
        lapis_trace_write_block_();
    }
}

/* A place that is known when the program runs. The caller holds the lock. */
lapis_trace_site *lapis_trace_site_at(const char *file, uint32_t line) {
    static lapis_trace_site sites[LAPIS_TRACE_SITES_AT];
    /* Where there is no room for more, they are all one. */
    static lapis_trace_site other = {"another place", 0, 0, 0};
    uint64_t hash = ((uint64_t)(uintptr_t)file + line) * 0x9E3779B97F4A7C15u;
    uint32_t tried;
    for (tried = 0; tried < LAPIS_TRACE_SITES_AT; tried++) {
        lapis_trace_site *site = &sites[((hash >> 32) + tried) % LAPIS_TRACE_SITES_AT];
        if (site->file == NULL) {
            site->file = file;
            site->line = line;
        }
        if (site->file == file && site->line == line) {
            return site;
        }
    }
    return &other;
}

/* The number of a place in the source, introducing it if it is new; 0 if there are too many. */
static uint32_t lapis_trace_place_(lapis_trace_site *site) {
    size_t length;
    if (site->trace == lapis_trace_.trace) {
        return site->number;
    }
    site->trace = lapis_trace_.trace;
    site->number = 0;
    length = strlen(site->file);
    if (length > LAPIS_TRACE_NAME_BYTES) {
        length = LAPIS_TRACE_NAME_BYTES;
    }
    if (length == 0 || lapis_trace_.sites == LAPIS_TRACE_SITES) {
        return 0;
    }
    /* A file is introduced anew when another one came between: names are few. */
    if (lapis_trace_.files == 0 || strlen(lapis_trace_.last_file) != length ||
        memcmp(lapis_trace_.last_file, site->file, length) != 0) {
        lapis_trace_byte_(0x03);
        lapis_trace_varint_(length);
        lapis_trace_bytes_(site->file, length);
        memcpy(lapis_trace_.last_file, site->file, length);
        lapis_trace_.last_file[length] = 0;
        lapis_trace_.files++;
        lapis_trace_.records++;
    }
    lapis_trace_byte_(0x04);
    lapis_trace_varint_(lapis_trace_.files - 1);
    lapis_trace_varint_(site->line);
    lapis_trace_varint_(0);
    lapis_trace_.records++;
    lapis_trace_.sites++;
    site->number = lapis_trace_.sites;
    return site->number;
}

/* Begins an event. */
static void lapis_trace_event_(int tag, lapis_trace_site *site) {
    uint32_t place;
    lapis_trace_room_();
    place = lapis_trace_place_(site);
    if (lapis_trace_worker_ == 0) {
        lapis_trace_worker_ = lapis_trace_next_worker_++ % 255 + 1;
    }
    lapis_trace_byte_((unsigned)tag);
    lapis_trace_byte_(lapis_trace_worker_ - 1);
    lapis_trace_varint_(place);
    lapis_trace_.records++;
}

/* The part of a range that lies in the region; its length, 0 if there is none. */
static uint64_t lapis_trace_inside_(const void *at, uint64_t bytes, uint64_t *offset) {
    uintptr_t base = (uintptr_t)lapis_trace_.base;
    uintptr_t start = (uintptr_t)at;
    if (lapis_trace_.file == NULL) {
        return 0;
    }
    if (start < base) {
        if (bytes <= base - start) {
            return 0;
        }
        bytes -= base - start;
        start = base;
    }
    *offset = start - base;
    if (*offset >= lapis_trace_.bytes) {
        return 0;
    }
    return bytes < lapis_trace_.bytes - *offset ? bytes : lapis_trace_.bytes - *offset;
}

void lapis_trace_store(int tag, const void *at, uint64_t bytes, lapis_trace_site *site) {
    uint64_t offset = 0;
    int is_word;
    bytes = lapis_trace_inside_(at, bytes, &offset);
    /* What is not a word, or ends outside of the region, cannot be ordered as a whole. */
    is_word = bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
    if ((tag == 0x11 || tag == 0x12) && (!is_word || bytes == 0 || offset % bytes != 0)) {
        tag = 0x10;
    }
    while (bytes > 0) {
        uint64_t part = LAPIS_TRACE_STORE_BYTES;
        if (part < bytes) {
            /* Parts end where stores are split anyway. */
            part -= (offset + part) % 8;
        } else {
            part = bytes;
        }
        lapis_trace_event_(tag, site);
        lapis_trace_delta_(offset);
        lapis_trace_varint_(part);
        lapis_trace_bytes_(lapis_trace_.base + offset, (size_t)part);
        offset += part;
        bytes -= part;
    }
}

void lapis_trace_flush(int tag, const void *at, uint64_t bytes, lapis_trace_site *site) {
    uint64_t offset = 0;
    uint64_t line, end;
    bytes = lapis_trace_inside_(at, bytes, &offset);
    if (bytes == 0) {
        return;
    }
    line = offset / LAPIS_TRACE_LINE_BYTES;
    end = (offset + bytes - 1) / LAPIS_TRACE_LINE_BYTES + 1;
    while (line < end) {
        uint64_t lines = end - line;
        if (lines > LAPIS_TRACE_FLUSH_LINES) {
            lines = LAPIS_TRACE_FLUSH_LINES;
        }
        lapis_trace_event_(tag, site);
        lapis_trace_delta_(line * LAPIS_TRACE_LINE_BYTES);
        lapis_trace_varint_(lines);
        line += lines;
    }
}

void lapis_trace_number(int tag, uint64_t number, lapis_trace_site *site) {
    if (lapis_trace_.file != NULL) {
        lapis_trace_event_(tag, site);
        lapis_trace_varint_(number & 0xFFFFFFFFu);
    }
}

void lapis_trace_fence(lapis_trace_site *site) {
    if (lapis_trace_.file != NULL) {
        lapis_trace_event_(0x23, site);
    }
}

void lapis_trace_range(int tag, const void *at, uint64_t bytes, lapis_trace_site *site) {
    uint64_t offset = 0;
    bytes = lapis_trace_inside_(at, bytes, &offset);
    if (bytes > 0) {
        lapis_trace_event_(tag, site);
        lapis_trace_varint_(offset);
        lapis_trace_varint_(bytes);
    }
}

void lapis_trace_ordered(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes,
                         lapis_trace_site *site) {
    uint64_t a_offset = 0, b_offset = 0;
    a_bytes = lapis_trace_inside_(a, a_bytes, &a_offset);
    b_bytes = lapis_trace_inside_(b, b_bytes, &b_offset);
    if (a_bytes > 0 && b_bytes > 0) {
        lapis_trace_event_(0x41, site);
        lapis_trace_varint_(a_offset);
        lapis_trace_varint_(a_bytes);
        lapis_trace_varint_(b_offset);
        lapis_trace_varint_(b_bytes);
    }
}

/* Saves the pages of the region that are not zero. */
static void lapis_trace_save_base_(void) {
    uint64_t offset;
    for (offset = 0; offset < lapis_trace_.bytes; offset += LAPIS_TRACE_STORE_BYTES) {
        const unsigned char *page = lapis_trace_.base + offset;
        uint64_t bytes = lapis_trace_.bytes - offset;
        if (bytes > LAPIS_TRACE_STORE_BYTES) {
            bytes = LAPIS_TRACE_STORE_BYTES;
        }
        /* Zero if the first byte is, and each byte equals the one before it. */
        if (page[0] == 0 && memcmp(page, page + 1, (size_t)bytes - 1) == 0) {
            continue;
        }
        lapis_trace_room_();
        lapis_trace_byte_(0x01);
        lapis_trace_varint_(offset);
        lapis_trace_varint_(bytes);
        lapis_trace_bytes_(page, (size_t)bytes);
        lapis_trace_.records++;
    }
}

int lapis_trace_begin(const char *path, const void *base, uint64_t bytes) {
    static const char writer[] = "lapis_trace.h 1";
    unsigned char header[64];
    uint32_t index;
    FILE *file;
    if (lapis_trace_.file != NULL) {
        return EBUSY;
    }
    if (bytes == 0 || bytes > (uint64_t)1 << 37 || (uintptr_t)base % LAPIS_TRACE_LINE_BYTES != 0) {
        return EINVAL;
    }
    for (index = 0; index < 256; index++) {
        uint32_t crc = index;
        int bit;
        for (bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78u : 0);
        }
        lapis_trace_.crc_table[index] = crc;
    }
    memset(header, 0, sizeof header);
    memcpy(header, "LAPISTRC", 8);
    header[8] = 1;
    header[10] = sizeof header;
    lapis_trace_put_u64_(header + 16, bytes);
    lapis_trace_put_u64_(header + 24, (uint64_t)(uintptr_t)base);
    memcpy(header + 32, writer, sizeof writer - 1);
    lapis_trace_put_u32_(header + 60, lapis_trace_crc_(0, header, 60));
    errno = 0;
    file = fopen(path, "wb");
    if (file == NULL) {
        return errno != 0 ? errno : EIO;
    }
    lapis_trace_lock();
    lapis_trace_.file = file;
    lapis_trace_.base = (const unsigned char *)base;
    lapis_trace_.bytes = bytes;
    lapis_trace_.previous = 0;
    lapis_trace_.records = 0;
    lapis_trace_.trace++;
    lapis_trace_.blocks = 0;
    lapis_trace_.files = 0;
    lapis_trace_.sites = 0;
    lapis_trace_.payload_bytes = 0;
    lapis_trace_.error = 0;
    if (fwrite(header, 1, sizeof header, file) != sizeof header || fflush(file) != 0) {
        lapis_trace_.error = errno != 0 ? errno : EIO;
    }
    lapis_trace_save_base_();
    lapis_trace_unlock();
    return lapis_trace_.error;
}

int lapis_trace_sync(void) {
    int error = EINVAL;
    lapis_trace_lock();
    if (lapis_trace_.file != NULL) {
        lapis_trace_write_block_();
        error = lapis_trace_.error;
    }
    lapis_trace_unlock();
    return error;
}

int lapis_trace_end(void) {
    int error = EINVAL;
    lapis_trace_lock();
    if (lapis_trace_.file != NULL) {
        uint64_t records = lapis_trace_.records;
        lapis_trace_room_();
        lapis_trace_byte_(0x7F);
        lapis_trace_varint_(records);
        lapis_trace_write_block_();
        if (fclose(lapis_trace_.file) != 0 && lapis_trace_.error == 0) {
            lapis_trace_.error = errno != 0 ? errno : EIO;
        }
        lapis_trace_.file = NULL;
        error = lapis_trace_.error;
    }
    lapis_trace_unlock();
    return error;
}

#endif /* LAPIS_TRACE_IMPLEMENTATION */
