/* pmcut: a plug-in for QEMU 7.2 that gives an emulated NVDIMM volatile caches, and cuts the power.
 *
 * It sees each store that the guest makes to the NVDIMM, each clwb, clflushopt and clflush, each fence, and
 * what the writer says by write(1). The NVDIMM's file holds what is visible. Beside it stands what is
 * durable. At chosen moments an image of what a power cut may leave is written to OUT/cut-NNNN.img, and
 * the guest goes on.
 *
 * Rules (Px86): what persists of a line that is not durable is any of its versions since the last durable
 * one, and lines persist independently. clwb and clflushopt count from the next sfence or mfence of the same
 * processor on, for the contents at the flush, and so do non-temporal stores; clflush counts at once. Locked
 * instructions complete nothing, but the kernel's switch of a processor to another thread does: the thread may go on
 * elsewhere. What the kernel stores through its own mapping is durable at once.
 *
 * The writer's words: `begin` (from here on there are cuts), `ready ...`, `ack THREAD N`.
 *
 * Arguments:
 *   pmem=PATH phys=ADDRESS   the NVDIMM's file, and where the guest has it
 *   out=DIR images=N seed=N  where images go, how many at most (then the guest is ended), choices
 *   every=N                  cuts behind about every Nth fence, and more often behind those that are rarely passed
 *   growth=1                 cuts around the system calls that make files longer, and nowhere else
 *   switch=N                 changes the processor after about N events, so that threads interleave
 *   breakflush=N             self-test: every Nth flush does nothing
 *   breaksync=1              self-test: fsync and fdatasync do nothing once the store is made
 *   omitfence=PC             self-test: the fence at this address does nothing; cuts only where that matters
 *
 * Not in the plug-in interface of 7.2 is the host address behind a guest address: the second word of an opaque struct. */
#include "../qemu/x86_plugin.h"
#include <fcntl.h>
#include <unistd.h>

/* What is used besides, of the plug-in interface and of QEMU. */
struct qemu_plugin_hwaddr;
struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(uint32_t, uint64_t);
bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *);
int cpu_memory_rw_debug(void *cpu, uint64_t address, void *buffer, uint64_t bytes, bool is_write);
uint64_t cpu_get_phys_page_attrs_debug(void *cpu, uint64_t address, unsigned *attributes);
void cpu_exit(void *cpu);
extern __thread void *current_cpu;
enum { RAX = 0, RDX = 2, RSI = 6, RDI = 7 };

enum { LINE = 64, PAGE = 4096, PROCESSORS = 4, THREADS = 8, VERSIONS = 12 };
/* Where Linux has physical memory: nokaslr, no5lvl. */
#define DIRECT_MAP 0xffff888000000000u

static char pmem_path[512], out[512];
static uint64_t phys, every, images, seed, switch_every, break_flush, omit_fence;
static bool growth, break_sync;
static FILE *report;
static uint8_t *visible, *durable;
static uint64_t pmem_bytes;

/* A line that is visible and not durable, with its versions since it was. */
struct version {
    uint64_t at;
    uint8_t bytes[LINE];
};
struct line {
    uint32_t number, versions, stores;
    struct version *version;
};
static struct line *lines;
static uint32_t n_lines, room_for_lines;
static uint32_t *index_of;    /* line number -> index in `lines` plus one */
static uint64_t *durable_at;  /* line number -> when the contents were flushed that are durable */

/* What a processor has flushed since its last fence. */
struct flushed {
    uint32_t line;
    bool nontemporal;
    uint64_t at;
    uint8_t bytes[LINE];
};
struct processor {
    struct flushed *flushed;
    uint32_t n, room;
};
static struct processor processors[PROCESSORS];

/* A fence in the code. */
struct fence_site {
    uint64_t pc, executed, waited, cuts;
};
static struct fence_site sites[4096];
static uint32_t n_sites;

static bool begun, ready;
static uint64_t acknowledged[THREADS];
static unsigned threads;
static uint64_t clock_, n_stores, n_nontemporal, n_kernel, n_flushes, n_flushes_in_vain, n_fences, n_acks, taken, ignored, n_switches;
static unsigned until_cut;     /* events until the next cut; 0: none is due */
static unsigned around_growth; /* events that count as near growth */
static const struct fence_site *last_site;

static uint64_t random_number(void)
{
    uint64_t z = seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static bool one_in(uint64_t n) { return n && random_number() % n == 0; }
static uint8_t *at_line(uint8_t *memory, uint32_t number) { return memory + (uint64_t)number * LINE; }

static void find_pmem(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char text[1024];
    uint64_t from, to;
    while (fgets(text, sizeof text, maps))
        if (strstr(text, pmem_path) && sscanf(text, "%" SCNx64 "-%" SCNx64, &from, &to) == 2 && to - from > pmem_bytes) {
            visible = (uint8_t *)from;
            pmem_bytes = to - from;
        }
    fclose(maps);
    if (!visible) return;
    durable = mmap(NULL, pmem_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    memcpy(durable, visible, pmem_bytes);
    index_of = calloc(pmem_bytes / LINE, sizeof *index_of);
    durable_at = calloc(pmem_bytes / LINE, sizeof *durable_at);
}

/* ---- what is durable ---- */

static struct line *line_of(uint32_t number)
{
    if (index_of[number]) return &lines[index_of[number] - 1];
    if (n_lines == room_for_lines) {
        room_for_lines = room_for_lines ? 2 * room_for_lines : 4096;
        lines = realloc(lines, room_for_lines * sizeof *lines);
    }
    struct line *line = &lines[n_lines];
    *line = (struct line){ .number = number, .version = malloc(VERSIONS * sizeof(struct version)) };
    index_of[number] = ++n_lines;
    return line;
}

static void forget_line(uint32_t number)
{
    uint32_t index = index_of[number] - 1;
    free(lines[index].version);
    index_of[number] = 0;
    if (index != --n_lines) {
        lines[index] = lines[n_lines];
        index_of[lines[index].number] = index + 1;
    }
}

static void becomes_durable(uint32_t number, uint64_t at, const uint8_t *bytes)
{
    /* Another processor's fence may have completed a later flush. */
    if (!index_of[number] || at < durable_at[number]) return;
    struct line *line = &lines[index_of[number] - 1];
    memcpy(at_line(durable, number), bytes, LINE);
    durable_at[number] = at;
    uint32_t left = 0;
    for (uint32_t i = 0; i < line->versions; i++)
        if (line->version[i].at > at) line->version[left++] = line->version[i];
    line->versions = left;
    if (!memcmp(at_line(visible, number), bytes, LINE)) forget_line(number);
}

static void note_flush(unsigned cpu, uint32_t number, bool nontemporal)
{
    struct processor *p = &processors[cpu];
    struct flushed *last = p->n ? &p->flushed[p->n - 1] : NULL;
    if (!(nontemporal && last && last->line == number && last->nontemporal)) {
        if (p->n == p->room) p->flushed = realloc(p->flushed, (p->room = p->room ? 2 * p->room : 1024) * sizeof *last);
        last = &p->flushed[p->n++];
    }
    last->line = number;
    last->nontemporal = nontemporal;
    last->at = clock_;
    memcpy(last->bytes, at_line(visible, number), LINE);
}

static void stored(unsigned cpu, uint64_t offset, unsigned bytes, bool nontemporal)
{
    for (uint32_t number = offset / LINE; number <= (offset + bytes - 1) / LINE; number++) {
        const uint8_t *now = at_line(visible, number);
        /* What was there already was stored again. */
        if (!index_of[number] && !memcmp(now, at_line(durable, number), LINE)) continue;
        struct line *line = line_of(number);
        uint32_t slot = line->versions < VERSIONS ? line->versions++ : random_number() % VERSIONS;
        line->version[slot].at = clock_;
        memcpy(line->version[slot].bytes, now, LINE);
        line->stores++;
        if (nontemporal) note_flush(cpu, number, true);
    }
}

static void stored_by_kernel(uint64_t offset, unsigned bytes)
{
    memcpy(durable + offset, visible + offset, bytes);
    for (uint32_t number = offset / LINE; number <= (offset + bytes - 1) / LINE; number++) {
        if (!index_of[number]) continue;
        /* What is in flight of the line has the kernel's bytes, too. */
        uint64_t from = (uint64_t)number * LINE > offset ? (uint64_t)number * LINE : offset;
        uint64_t to = (number + 1ull) * LINE < offset + bytes ? (number + 1ull) * LINE : offset + bytes;
        for (unsigned cpu = 0; cpu < PROCESSORS; cpu++)
            for (uint32_t i = 0; i < processors[cpu].n; i++)
                if (processors[cpu].flushed[i].line == number)
                    memcpy(processors[cpu].flushed[i].bytes + from % LINE, visible + from, to - from);
    }
}

/* ---- cuts ---- */

enum kind { NONE_KEPT, BY_COIN, ONE_KEPT, ONE_LOST, KINDS };
static const char *kind_names[] = { "none-kept", "by-coin", "one-kept", "one-lost" };

static void write_image(const char *name)
{
    static const uint8_t zeroes[PAGE];
    int file = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0644);
    if (file < 0 || ftruncate(file, pmem_bytes)) perror(name);
    for (uint64_t at = 0; at < pmem_bytes;) {
        uint64_t end = at;
        while (end < pmem_bytes && end - at < 1 << 20 && memcmp(visible + end, zeroes, PAGE)) end += PAGE;
        if (end > at && pwrite(file, visible + at, end - at, at) < 0) perror(name);
        at = end > at ? end : at + PAGE;
    }
    close(file);
}

/* A line in flight, if there is one: the one of which a fence that is missing would make a difference. */
static uint32_t chosen_line(unsigned cpu)
{
    const struct processor *p = &processors[cpu];
    for (unsigned tries = 0; p->n && tries < 8; tries++) {
        uint32_t number = p->flushed[random_number() % p->n].line;
        if (index_of[number]) return number;
    }
    return n_lines ? lines[random_number() % n_lines].number : 0;
}

static void on_end(plugin_id id, void *unused)
{
    (void)id, (void)unused;
    for (uint32_t i = 0; i < n_sites; i++)
        fprintf(report, "site %#" PRIx64 " executed %" PRIu64 " waited %" PRIu64 " cuts %" PRIu64 "\n", sites[i].pc, sites[i].executed, sites[i].waited, sites[i].cuts);
    fprintf(report, "end: stores %" PRIu64 " (%" PRIu64 " non-temporal, %" PRIu64 " of the kernel), flushes %" PRIu64 " (%" PRIu64 " in vain), fences %" PRIu64
            " at %u places, acknowledgements %" PRIu64 ", switches %" PRIu64 ", ignored %" PRIu64 ", cuts %" PRIu64 "\n",
            n_stores, n_nontemporal, n_kernel, n_flushes, n_flushes_in_vain, n_fences, n_sites, n_acks, n_switches, ignored, taken);
    fflush(report);
}

/* Writes what a power cut may leave: what is visible, but of each line that is not durable some version. */
static void cut(unsigned cpu, const char *where)
{
    enum kind kind = random_number() % KINDS;
    uint32_t chosen = chosen_line(cpu), lost = 0, torn = 0;
    uint8_t *saved = malloc((size_t)(n_lines + 1) * LINE);
    for (uint32_t i = 0; i < n_lines; i++) {
        uint8_t *now = at_line(visible, lines[i].number);
        memcpy(saved + (size_t)i * LINE, now, LINE);
        bool is_chosen = lines[i].number == chosen;
        bool keep = kind == BY_COIN ? one_in(2) : kind == ONE_KEPT ? is_chosen : kind == ONE_LOST && !is_chosen;
        if (!keep) {
            memcpy(now, at_line(durable, lines[i].number), LINE);
            lost++;
        } else if (lines[i].versions && one_in(2)) {
            memcpy(now, lines[i].version[random_number() % lines[i].versions].bytes, LINE);
            torn++;
        }
    }
    char name[600];
    snprintf(name, sizeof name, "%s/cut-%04" PRIu64 ".img", out, taken);
    write_image(name);
    for (uint32_t i = 0; i < n_lines; i++) memcpy(at_line(visible, lines[i].number), saved + (size_t)i * LINE, LINE);
    free(saved);
    fprintf(report, "cut %" PRIu64 " acknowledged ", taken);
    if (!ready) fprintf(report, "none");
    for (unsigned i = 0; ready && i < threads; i++) fprintf(report, "%s%" PRIu64, i ? "," : "", acknowledged[i]);
    fprintf(report, " where %s fence %#" PRIx64 " kind %s lines %u lost %u torn %u event %" PRIu64 "\n", where,
            last_site ? last_site->pc : 0, kind_names[kind], n_lines, lost, torn, clock_);
    fflush(report);
    if (++taken == images) {
        on_end(0, NULL);
        _exit(0);
    }
}

static void event(unsigned cpu, const char *where)
{
    clock_++;
    if (!begun) return;
    if (one_in(switch_every)) cpu_exit(current_cpu);
    bool due = until_cut && !--until_cut;
    if (around_growth) {
        around_growth--;
        due = one_in(8);
    }
    if (due) cut(cpu, where);
}

static struct fence_site *site_of(uint64_t pc)
{
    for (uint32_t i = 0; i < n_sites; i++)
        if (sites[i].pc == pc) return &sites[i];
    struct fence_site *site = &sites[n_sites < 4095 ? n_sites++ : 4095];
    site->pc = pc;
    return site;
}

static void complete(struct processor *p)
{
    for (uint32_t i = 0; i < p->n; i++) becomes_durable(p->flushed[i].line, p->flushed[i].at, p->flushed[i].bytes);
    p->n = 0;
}

static void fence(unsigned cpu, struct fence_site *site)
{
    struct processor *p = &processors[cpu];
    n_fences++;
    if (p->n) {
        /* The last moment at which its lines may be lost. */
        if (until_cut) until_cut = 1;
        event(cpu, "before-fence");
        site->waited++;
    }
    site->executed++;
    last_site = site;
    bool omitted = site->pc == omit_fence;
    bool waited = p->n;
    if (omitted) ignored++;
    else complete(p);
    if (!begun || growth || !waited) return;
    /* Either in about every so many intervals between fences, or in the first ones behind this fence. */
    uint64_t rarer = (every / 8 + 1) * (1 + site->waited * site->waited / 4);
    bool here = omit_fence ? omitted && one_in(2) : every && (one_in(every) || one_in(rarer));
    if (here && !until_cut) {
        until_cut = 1 + random_number() % 12;
        site->cuts++;
    }
}

/* ---- what the guest does ---- */

static void on_store(unsigned cpu, uint32_t info, uint64_t address, void *nontemporal)
{
    /* QEMU 7.2 tells of loads, too. */
    if (!visible || !qemu_plugin_mem_is_store(info)) return;
    unsigned bytes = 1u << qemu_plugin_mem_size_shift(info);
    if (address >> 47) {
        uint64_t offset = address - DIRECT_MAP - phys;
        if (offset >= pmem_bytes) return;
        n_kernel++;
        stored_by_kernel(offset, bytes);
        return;
    }
    struct qemu_plugin_hwaddr *host = qemu_plugin_get_hwaddr(info, address);
    if (!host || qemu_plugin_hwaddr_is_io(host)) return;
    uint64_t offset = ((uint64_t *)host)[1] - (uint64_t)visible;
    if (offset >= pmem_bytes) return;
    n_stores++;
    if (nontemporal) n_nontemporal++;
    stored(cpu, offset, bytes, nontemporal);
    if (index_of[offset / LINE]) event(cpu, "after-store");
}

__attribute__((used)) void flush_with_env(unsigned cpu, const struct flush_insn *f, const uint64_t *env)
{
    if (!visible) return;
    uint64_t address = flush_address(f, env);
    unsigned attributes;
    uint64_t page = cpu_get_phys_page_attrs_debug(current_cpu, address & ~(PAGE - 1ull), &attributes);
    if (page == UINT64_MAX || page - phys >= pmem_bytes) return;
    uint32_t number = (page - phys + (address & (PAGE - 1))) / LINE;
    n_flushes++;
    if (!index_of[number]) {
        n_flushes_in_vain++;
        return;
    }
    event(cpu, "before-flush");
    if (break_flush && n_flushes % break_flush == 0) ignored++;
    else if (f->at_once) becomes_durable(number, clock_, at_line(visible, number));
    else note_flush(cpu, number, false);
}

__attribute__((used)) void fence_at(unsigned cpu, void *pc)
{
    if (visible) fence(cpu, site_of((uint64_t)pc));
}

static void on_switch(unsigned cpu, void *unused)
{
    (void)unused;
    if (!visible) return;
    n_switches += processors[cpu].n > 0;
    complete(&processors[cpu]);
}

static void said(const char *text)
{
    unsigned thread;
    uint64_t n;
    if (!strncmp(text, "begin", 5)) begun = true;
    else if (!strncmp(text, "ready", 5)) ready = true;
    else if (sscanf(text, "ack %u %" SCNu64, &thread, &n) == 2 && thread < THREADS) {
        acknowledged[thread] = n;
        if (thread >= threads) threads = thread + 1;
        n_acks++;
    }
}

__attribute__((used)) void syscall_with_env(unsigned cpu, void *unused, uint64_t *env)
{
    enum { WRITE = 1, SCHED_YIELD = 24, FSYNC = 74, FDATASYNC = 75, FTRUNCATE = 77, RENAME = 82, FALLOCATE = 285, RENAMEAT2 = 316 };
    (void)unused;
    if (!visible) return;
    char text[65] = { 0 };
    switch (env[RAX]) {
    case WRITE:
        if (env[RDI] != 1 || env[RDX] >= sizeof text || cpu_memory_rw_debug(current_cpu, env[RSI], text, env[RDX], false)) return;
        said(text);
        event(cpu, "after-acknowledgement");
        return;
    case FTRUNCATE:
    case FALLOCATE:
        if (growth && begun) around_growth = 40;
        event(cpu, "before-growth");
        return;
    case FSYNC:
    case FDATASYNC:
    case RENAME:
    case RENAMEAT2:
        if (begun && !growth && !omit_fence && one_in(every / 10) && !until_cut) until_cut = 1 + random_number() % 4;
        event(cpu, "before-sync-or-rename");
        if (!break_sync || !ready || (env[RAX] != FSYNC && env[RAX] != FDATASYNC)) return;
        env[RAX] = SCHED_YIELD;
        ignored++;
    }
}

WITH_ENV(flush_entry, flush_with_env);
WITH_ENV(syscall_entry, syscall_with_env);

/* ---- instructions ---- */

static void on_translation(plugin_id id, struct qemu_plugin_tb *tb)
{
    (void)id;
    for (size_t i = 0, n = qemu_plugin_tb_n_insns(tb); i < n; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        const uint8_t *b = qemu_plugin_insn_data(insn);
        size_t bytes = qemu_plugin_insn_size(insn);
        uint64_t pc = qemu_plugin_insn_vaddr(insn);
        qemu_plugin_register_vcpu_mem_cb(insn, on_store, NO_REGISTERS, STORES, (void *)(uintptr_t)is_nontemporal(b, bytes));
        if (pc >> 47) {
            /* wrfsbase: of what the kernel executes, only its switch to another thread. */
            if (bytes == 5 && b[0] == 0xf3 && b[2] == 0x0f && b[3] == 0xae && b[4] >> 3 == 0xd0 >> 3)
                qemu_plugin_register_vcpu_insn_exec_cb(insn, on_switch, NO_REGISTERS, NULL);
            continue;
        }
        struct flush_insn f, *kept;
        if (decode_flush(b, bytes, &f, pc)) {
            *(kept = malloc(sizeof f)) = f;
            qemu_plugin_register_vcpu_insn_exec_cb(insn, flush_entry, WITH_REGISTERS, kept);
        } else if (is_fence(b, bytes)) {
            qemu_plugin_register_vcpu_insn_exec_cb(insn, fence_at, NO_REGISTERS, (void *)pc);
        } else if (bytes == 2 && b[0] == 0x0f && b[1] == 0x05) {
            qemu_plugin_register_vcpu_insn_exec_cb(insn, syscall_entry, WITH_REGISTERS, NULL);
        }
    }
}

/* ---- beginning and end ---- */

static void on_processor(plugin_id id, unsigned cpu)
{
    (void)id;
    if (cpu >= PROCESSORS) {
        fprintf(stderr, "pmcut: more than %d processors\n", PROCESSORS);
        _exit(2);
    }
    if (!visible) find_pmem();
}

__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const void *info, int count, char **arguments)
{
    (void)info;
    for (int i = 0; i < count; i++) {
        char *value = strchr(arguments[i], '=');
        if (!value) return -1;
        *value++ = 0;
        const char *name = arguments[i];
        uint64_t n = strtoull(value, NULL, 0);
        if (!strcmp(name, "pmem")) snprintf(pmem_path, sizeof pmem_path, "%s", value);
        else if (!strcmp(name, "out")) snprintf(out, sizeof out, "%s", value);
        else if (!strcmp(name, "phys")) phys = n;
        else if (!strcmp(name, "every")) every = n;
        else if (!strcmp(name, "images")) images = n;
        else if (!strcmp(name, "seed")) seed = n;
        else if (!strcmp(name, "growth")) growth = n;
        else if (!strcmp(name, "switch")) switch_every = n;
        else if (!strcmp(name, "breakflush")) break_flush = n;
        else if (!strcmp(name, "breaksync")) break_sync = n;
        else if (!strcmp(name, "omitfence")) omit_fence = n;
        else {
            fprintf(stderr, "pmcut: unknown argument %s\n", name);
            return -1;
        }
    }
    char name[600];
    snprintf(name, sizeof name, "%s/report", out);
    report = fopen(name, "w");
    if (!report || !have_globals_written_back("qemu-system-x86_64")) {
        fprintf(stderr, "pmcut: no report can be written, or this is not the QEMU that it is made for\n");
        return -1;
    }
    qemu_plugin_register_vcpu_init_cb(id, on_processor);
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_atexit_cb(id, on_end, NULL);
    return 0;
}
