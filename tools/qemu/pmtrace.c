/* pmtrace: a plug-in for QEMU 7.2's user-mode emulation that records what an unchanged x86-64 program does to a file that
 * it maps, as `lapis crash --trace` reads it. `lapis trace` compiles it and runs the program in it.
 *
 * Recorded are, of shared mappings of the file: stores, plain, locked and past the caches, with what they stored;
 * clwb, clflushopt and clflush; sfence and mfence; msync, fsync and fdatasync, as flushes of what has been stored and a
 * fence; and what the kernel reads into the mapping (read, pread64). The trace begins with the first mapping of the file,
 * with what the file holds then, and is of as many bytes. Stores are taken to be in the order in which the machine made
 * them: what the compiler has made of the source is what is checked.
 *
 * Callbacks for stores come after the store, so its value is read from a mapping of our own of the same file. Of threads
 * that store to one word at once a later value may be read, which is then recorded twice.
 *
 * What the C library stores has the place that called it: the end of the last block of code that was not the library's.
 * A place in the source is module and offset for now, `*MODULE` and a number as if it were a line; `lapis trace` asks
 * addr2line for the names when the program has ended.
 *
 * With acknowledge=1, what a thread stores until it writes to something else than the file (write, writev, sendto,
 * sendmsg) is an operation, which that acknowledges.
 *
 * A child process is not recorded.
 *
 * Arguments: map=FILE out=TRACE acknowledge=1 */
#include "x86_plugin.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#define LAPIS_TRACE_IMPLEMENTATION
#include "lapis_trace.h"

void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned, void *), int, void *);
void qemu_plugin_register_vcpu_syscall_cb(plugin_id, void (*)(plugin_id, unsigned, int64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t));
void qemu_plugin_register_vcpu_syscall_ret_cb(plugin_id, void (*)(plugin_id, unsigned, int64_t, int64_t));
extern uintptr_t guest_base;

enum { LINE = 64, MAPPINGS = 64, PLAIN = 0x11, LOCKED = 0x12, PAST_CACHES = 0x13 };
enum { WRITE = 1, WRITEV = 20, SENDTO = 44, SENDMSG = 46 };
enum { READ = 0, MMAP = 9, MUNMAP = 11, PREAD = 17, MREMAP = 25, MSYNC = 26, EXIT_GROUP = 231, FSYNC = 74, FDATASYNC = 75 };

static char map_path[4096], out_path[4096];
static struct stat file;
static uint8_t *ours; /* the file */
static uint64_t file_bytes;
static uint8_t *stored_lines; /* by line: stored to since its last msync or fsync */
static bool begun, ended, acknowledge;
static uint64_t operations;
static __thread uint64_t operation; /* that the thread is in */

/* Where the program has the file. */
static struct mapping {
    uint64_t from, to, offset;
} mappings[MAPPINGS];
static unsigned n_mappings;

/* The system call that a thread is in. */
static __thread struct {
    uint64_t a[6];
} call;

/* ---- places ---- */

struct module {
    uint64_t from, to, offset;
    char *name; /* `*` and the path */
    bool is_c_library;
};
static struct module modules[1024];
static unsigned n_modules;
/* Pages that no module has, as of code that is made when the program runs. */
enum { UNKNOWN_PAGES = 256 };
static uint64_t unknown_pages[UNKNOWN_PAGES];
/* Where the thread last was that is not in the C library. */
static __thread uint64_t caller;

static void read_modules(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char text[4600], path[4200];
    uint64_t from, to, offset;
    n_modules = 0;
    while (maps && fgets(text, sizeof text, maps) && n_modules < 1024)
        if (sscanf(text, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*s %*s %4199[^\n]", &from, &to, &offset, path + 1) == 4 && path[1] == '/') {
            path[0] = '*';
            /* A name stays where it is: places are known by it. */
            char *name = NULL;
            for (unsigned i = 0; i < n_modules && !name; i++)
                if (!strcmp(modules[i].name, path)) name = modules[i].name;
            static char *known[1024];
            static unsigned n_known;
            for (unsigned i = 0; i < n_known && !name; i++)
                if (!strcmp(known[i], path)) name = known[i];
            if (!name && n_known < 1024) name = known[n_known++] = strdup(path);
            const char *last = strrchr(path, '/') + 1;
            bool is_c_library = !strncmp(last, "libc.so", 7) || !strncmp(last, "libc-", 5) || !strncmp(last, "ld-", 3);
            if (name) modules[n_modules++] = (struct module){ from - guest_base, to - guest_base, offset, name, is_c_library };
        }
    if (maps) fclose(maps);
}

/* The caller holds the lock. */
static const struct module *module_of(uint64_t pc)
{
    uint64_t *unknown = &unknown_pages[(pc >> 12) % UNKNOWN_PAGES];
    for (int again = 0; again < 2; again++) {
        for (unsigned i = 0; i < n_modules; i++)
            if (pc >= modules[i].from && pc < modules[i].to) return &modules[i];
        if (*unknown == pc >> 12) break;
        if (!again) read_modules();
    }
    *unknown = pc >> 12;
    return NULL;
}

static lapis_trace_site *site_of(uint64_t pc)
{
    const struct module *module = module_of(pc);
    if (module && module->is_c_library && caller) module = module_of(pc = caller);
    if (!module) return lapis_trace_site_at("*unknown", (uint32_t)pc);
    return lapis_trace_site_at(module->name, (uint32_t)(pc - module->from + module->offset));
}

/* A block of the linker's table of procedures: it goes on to what was called. */
static bool is_stub(struct qemu_plugin_tb *tb, size_t n)
{
    struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, n - 1);
    const uint8_t *b = qemu_plugin_insn_data(insn);
    size_t i = b[0] == 0xf2, bytes = qemu_plugin_insn_size(insn);
    if (i + 1 < bytes && b[i] == 0xff && b[i + 1] == 0x25) return true;
    /* push and jmp, to the resolver */
    return n >= 2 && n <= 3 && b[i] == 0xe9
        && *(const uint8_t *)qemu_plugin_insn_data(qemu_plugin_tb_get_insn(tb, n - 2)) == 0x68;
}

static void on_block(unsigned cpu, void *last)
{
    (void)cpu;
    caller = (uint64_t)last;
}

/* ---- what is recorded; the caller holds the lock ---- */

/* The offset in the file of an address, and how many bytes of it are mapped there. */
static bool in_file(uint64_t address, uint64_t *offset, uint64_t *bytes)
{
    for (unsigned i = 0; i < n_mappings; i++)
        if (address >= mappings[i].from && address < mappings[i].to) {
            *offset = mappings[i].offset + (address - mappings[i].from);
            if (*offset >= file_bytes) return false;
            uint64_t left = mappings[i].to - address, in = file_bytes - *offset;
            *bytes = left < in ? left : in;
            return true;
        }
    return false;
}

static void record_store(int tag, uint64_t offset, uint64_t bytes, lapis_trace_site *site)
{
    if (acknowledge && !operation) lapis_trace_number(0x30, operation = ++operations, site);
    for (uint64_t line = offset / LINE; line <= (offset + bytes - 1) / LINE; line++) stored_lines[line] = 1;
    if (tag == PAST_CACHES) {
        lapis_trace_store(tag, ours + offset, bytes, site);
        return;
    }
    /* Naturally aligned parts, each in order. */
    while (bytes) {
        uint64_t part = offset & (0 - offset);
        if (!part || part > 8) part = 8;
        while (part > bytes) part /= 2;
        lapis_trace_store(tag, ours + offset, part, site);
        offset += part;
        bytes -= part;
    }
}

static void record_sync(uint64_t offset, uint64_t bytes, lapis_trace_site *site)
{
    for (uint64_t line = offset / LINE; bytes && line <= (offset + bytes - 1) / LINE; line++)
        if (stored_lines[line]) {
            stored_lines[line] = 0;
            lapis_trace_flush(0x20, ours + line * LINE, 1, site);
        }
    lapis_trace_fence(site);
}

/* ---- instructions ---- */

struct store_insn {
    uint64_t pc;
    int tag;
};

static void on_store(unsigned cpu, uint32_t info, uint64_t address, void *data)
{
    (void)cpu;
    /* 7.2 calls it for loads, too. */
    if (!begun || !qemu_plugin_mem_is_store(info)) return;
    const struct store_insn *insn = data;
    uint64_t offset, left, bytes = 1u << qemu_plugin_mem_size_shift(info);
    lapis_trace_lock();
    if (in_file(address, &offset, &left)) record_store(insn->tag, offset, bytes < left ? bytes : left, site_of(insn->pc));
    lapis_trace_unlock();
}

__attribute__((used)) void flush_with_env(unsigned cpu, const struct flush_insn *f, const uint64_t *env)
{
    (void)cpu;
    uint64_t offset, left;
    if (!begun) return;
    lapis_trace_lock();
    if (in_file(flush_address(f, env), &offset, &left))
        lapis_trace_flush(f->at_once ? 0x22 : f->optimised ? 0x21 : 0x20, ours + offset, 1, site_of(f->pc));
    lapis_trace_unlock();
}
WITH_ENV(flush_entry, flush_with_env);

static void on_fence(unsigned cpu, void *pc)
{
    (void)cpu;
    if (!begun) return;
    lapis_trace_lock();
    lapis_trace_fence(site_of((uint64_t)pc));
    lapis_trace_unlock();
}

/* A lock prefix, or xchg with memory. */
static bool is_locked(const uint8_t *b, size_t n)
{
    size_t i = 0;
    for (; i < n && (b[i] == 0x66 || b[i] == 0x2e || b[i] == 0x3e || b[i] == 0x64 || b[i] == 0x65 || b[i] == 0xf2 || b[i] == 0xf3 || b[i] == 0xf0); i++)
        if (b[i] == 0xf0) return true;
    if (i < n && (b[i] & 0xf0) == 0x40) i++;
    return i + 1 < n && (b[i] == 0x86 || b[i] == 0x87) && b[i + 1] >> 6 != 3;
}

static void on_translation(plugin_id id, struct qemu_plugin_tb *tb)
{
    (void)id;
    size_t n = qemu_plugin_tb_n_insns(tb);
    lapis_trace_lock();
    const struct module *module = module_of(qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, 0)));
    bool is_c_library = module && module->is_c_library;
    lapis_trace_unlock();
    uint64_t last = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, n - 1));
    if (!is_c_library && !is_stub(tb, n)) qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, NO_REGISTERS, (void *)last);
    for (size_t i = 0; i < n; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        const uint8_t *b = qemu_plugin_insn_data(insn);
        size_t bytes = qemu_plugin_insn_size(insn);
        uint64_t pc = qemu_plugin_insn_vaddr(insn);
        struct flush_insn f, *kept;
        struct store_insn *store = malloc(sizeof *store);
        *store = (struct store_insn){ pc, is_locked(b, bytes) ? LOCKED : is_nontemporal(b, bytes) ? PAST_CACHES : PLAIN };
        qemu_plugin_register_vcpu_mem_cb(insn, on_store, NO_REGISTERS, STORES, store);
        if (decode_flush(b, bytes, &f, pc)) {
            *(kept = malloc(sizeof f)) = f;
            qemu_plugin_register_vcpu_insn_exec_cb(insn, flush_entry, WITH_REGISTERS, kept);
        } else if (is_fence(b, bytes)) {
            qemu_plugin_register_vcpu_insn_exec_cb(insn, on_fence, NO_REGISTERS, (void *)pc);
        }
    }
}

/* ---- system calls ---- */

static bool is_the_file(uint64_t descriptor)
{
    struct stat found;
    if (!file.st_ino && stat(map_path, &file) != 0) return false;
    return fstat((int)descriptor, &found) == 0 && found.st_dev == file.st_dev && found.st_ino == file.st_ino;
}

static void begin(uint64_t address)
{
    int descriptor = open(map_path, O_RDONLY);
    struct stat now;
    if (descriptor < 0 || fstat(descriptor, &now) != 0) return;
    file_bytes = (uint64_t)now.st_size;
    void *mapped = mmap(NULL, file_bytes, PROT_READ, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (mapped == MAP_FAILED || file_bytes < LINE) return;
    ours = mapped;
    stored_lines = calloc(file_bytes / LINE + 1, 1);
    int error = lapis_trace_begin(out_path, ours, file_bytes);
    if (error) {
        fprintf(stderr, "pmtrace: %s: %s\n", out_path, strerror(error));
        _exit(2);
    }
    /* The program's own address, in place of that of our mapping. */
    char name[4200];
    snprintf(name, sizeof name, "%s.base", out_path);
    FILE *base = fopen(name, "w");
    if (base) {
        fprintf(base, "%" PRIu64 "\n", address);
        fclose(base);
    }
    begun = true;
}

static void unmap(uint64_t from, uint64_t to)
{
    for (unsigned i = 0; i < n_mappings;) {
        struct mapping m = mappings[i];
        if (to <= m.from || from >= m.to) {
            i++;
            continue;
        }
        mappings[i] = mappings[--n_mappings];
        if (m.from < from && n_mappings < MAPPINGS) mappings[n_mappings++] = (struct mapping){ m.from, from, m.offset };
        if (m.to > to && n_mappings < MAPPINGS) mappings[n_mappings++] = (struct mapping){ to, m.to, m.offset + (to - m.from) };
        i = 0;
    }
}

static void on_syscall(plugin_id id, unsigned cpu, int64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h)
{
    (void)id, (void)cpu, (void)g, (void)h;
    uint64_t all[6] = { a, b, c, d, e, f };
    memcpy(call.a, all, sizeof all);
    bool says = number == WRITE || number == WRITEV || number == SENDTO || number == SENDMSG;
    if (says && begun && operation && !is_the_file(a)) {
        lapis_trace_lock();
        lapis_trace_number(0x31, operation, lapis_trace_site_at("*write", (uint32_t)number));
        operation = 0;
        lapis_trace_unlock();
    }
    if (number == EXIT_GROUP && begun && !ended) {
        ended = true;
        begun = false;
        lapis_trace_end();
    }
}

static void on_return(plugin_id id, unsigned cpu, int64_t number, int64_t result)
{
    (void)id, (void)cpu;
    const uint64_t *a = call.a;
    bool failed = result < 0 && result > -4096;
    uint64_t offset, left;
    if (failed || ended) return;
    lapis_trace_lock();
    switch (number) {
    case MMAP:
        unmap((uint64_t)result, (uint64_t)result + a[1]);
        if ((a[3] & 3) == 1 || (a[3] & 3) == 3) { /* MAP_SHARED, MAP_SHARED_VALIDATE */
            if (!is_the_file(a[4])) break;
            if (!begun) begin((uint64_t)result - a[5]);
            if (begun && n_mappings < MAPPINGS) mappings[n_mappings++] = (struct mapping){ (uint64_t)result, (uint64_t)result + a[1], a[5] };
        }
        break;
    case MUNMAP:
        unmap(a[0], a[0] + a[1]);
        break;
    case MREMAP:
        if (in_file(a[0], &offset, &left)) {
            unmap(a[0], a[0] + a[1]);
            if (n_mappings < MAPPINGS) mappings[n_mappings++] = (struct mapping){ (uint64_t)result, (uint64_t)result + a[2], offset };
        }
        break;
    case READ:
    case PREAD:
        if (begun && result && in_file(a[1], &offset, &left))
            record_store(PLAIN, offset, (uint64_t)result < left ? (uint64_t)result : left, lapis_trace_site_at("*read", (uint32_t)number));
        break;
    case MSYNC:
        if (begun && in_file(a[0], &offset, &left)) record_sync(offset, a[1] < left ? a[1] : left, lapis_trace_site_at("*msync", MSYNC));
        break;
    case FSYNC:
    case FDATASYNC:
        if (begun && is_the_file(a[0])) record_sync(0, file_bytes, lapis_trace_site_at("*fsync", (uint32_t)number));
        break;
    }
    lapis_trace_unlock();
}

static void in_child(void)
{
    begun = false;
    ended = true;
}

static void on_end(plugin_id id, void *unused)
{
    (void)id, (void)unused;
    if (begun && !ended) lapis_trace_end();
}

__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const void *info, int count, char **arguments)
{
    (void)info;
    for (int i = 0; i < count; i++) {
        char *value = strchr(arguments[i], '=');
        if (!value) return -1;
        *value++ = 0;
        if (!strcmp(arguments[i], "map")) snprintf(map_path, sizeof map_path, "%s", value);
        else if (!strcmp(arguments[i], "out")) snprintf(out_path, sizeof out_path, "%s", value);
        else if (!strcmp(arguments[i], "acknowledge")) acknowledge = *value == '1';
        else return -1;
    }
    if (!have_globals_written_back("qemu-x86_64")) {
        fprintf(stderr, "pmtrace: this is not the QEMU that it is made for, 7.2\n");
        return -1;
    }
    pthread_atfork(NULL, NULL, in_child);
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_vcpu_syscall_cb(id, on_syscall);
    qemu_plugin_register_vcpu_syscall_ret_cb(id, on_return);
    qemu_plugin_register_atexit_cb(id, on_end, NULL);
    return 0;
}
