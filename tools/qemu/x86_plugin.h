/* x86_plugin.h: what our plug-ins for QEMU 7.2 have in common: the plug-in interface, which instructions flush, fence and
 * store past the caches, and the processor's registers.
 *
 * Registers are not in the plug-in interface of 7.2: env is in rbp when generated code calls out, and globals are
 * written back before such a call if a flag in QEMU's table of helpers says so. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The part of the plug-in interface (version 1) that is used. */
typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_init_cb(plugin_id, void (*)(plugin_id, unsigned));
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *), int, void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, void (*)(unsigned, uint32_t, uint64_t, void *), int, int, void *);
void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
unsigned qemu_plugin_mem_size_shift(uint32_t);
bool qemu_plugin_mem_is_store(uint32_t);
__attribute__((visibility("default"))) int qemu_plugin_version = 1;
enum { NO_REGISTERS = 0, WITH_REGISTERS = 1, STORES = 2 };

/* A clwb, clflushopt or clflush, and where it gets its address. */
struct flush_insn {
    int8_t base, index;
    uint8_t scale;
    bool at_once; /* clflush */
    bool optimised; /* clflushopt */
    int64_t displacement;
    uint64_t pc, next;
};
enum { RELATIVE = 16 };

static bool decode_flush(const uint8_t *b, size_t n, struct flush_insn *f, uint64_t address)
{
    size_t i = 0;
    uint8_t rex = 0;
    bool prefixed = false;
    for (; i < n && (b[i] == 0x66 || b[i] == 0x3e || b[i] == 0x2e); i++) prefixed |= b[i] == 0x66;
    if (i < n && (b[i] & 0xf0) == 0x40) rex = b[i++];
    if (i + 2 >= n || b[i] != 0x0f || b[i + 1] != 0xae) return false;
    uint8_t modrm = b[i + 2], mod = modrm >> 6, operation = modrm >> 3 & 7, rm = modrm & 7;
    i += 3;
    /* /7: clflush, with the prefix clflushopt; /6 with the prefix: clwb. */
    if (mod == 3 || !(operation == 7 || (operation == 6 && prefixed))) return false;
    *f = (struct flush_insn){ .base = -1, .index = -1, .at_once = operation == 7 && !prefixed, .optimised = operation == 7 && prefixed, .pc = address, .next = address + n };
    int32_t wide = 0;
    memcpy(&wide, b + n - 4, n >= 4 ? 4 : 0);
    if (rm == 4) {
        uint8_t sib = b[i++];
        int index = (sib >> 3 & 7) | (rex & 2 ? 8 : 0);
        f->scale = sib >> 6;
        if (index != 4) f->index = index;
        if ((sib & 7) == 5 && mod == 0) f->displacement = wide;
        else f->base = (sib & 7) | (rex & 1 ? 8 : 0);
    } else if (rm == 5 && mod == 0) {
        f->base = RELATIVE;
        f->displacement = wide;
    } else f->base = rm | (rex & 1 ? 8 : 0);
    if (mod == 1) f->displacement = (int8_t)b[i];
    if (mod == 2) f->displacement = wide;
    return true;
}

/* The address that it flushes, from env, which begins with the sixteen registers. */
static uint64_t flush_address(const struct flush_insn *f, const uint64_t *env)
{
    return f->displacement + (f->base == RELATIVE ? f->next : f->base >= 0 ? env[f->base] : 0)
        + (f->index >= 0 ? env[f->index] << f->scale : 0);
}

/* sfence or mfence. */
static bool is_fence(const uint8_t *b, size_t n)
{
    return n == 3 && b[0] == 0x0f && b[1] == 0xae && b[2] >= 0xf0;
}

/* movnti, movntdq, movntps and their AVX forms. */
static bool is_nontemporal(const uint8_t *b, size_t n)
{
    size_t i = 0;
    if (n > 3 && b[0] == 0xc5) return b[2] == 0xe7 || b[2] == 0x2b;
    if (n > 4 && b[0] == 0xc4) return (b[1] & 31) == 1 && (b[3] == 0xe7 || b[3] == 0x2b);
    while (i < n && (b[i] == 0x66 || b[i] == 0xf2 || b[i] == 0xf3)) i++;
    if (i < n && (b[i] & 0xf0) == 0x40) i++;
    return i + 1 < n && b[i] == 0x0f && (b[i + 1] == 0xc3 || b[i + 1] == 0xe7 || b[i + 1] == 0x2b);
}

/* Has a callback of an instruction get env as its third argument. */
#define WITH_ENV(entry, function) \
    __asm__(".text\n" #entry ": mov %rbp,%rdx\n jmp " #function "@PLT\n"); \
    void entry(unsigned, void *)

/* The table of helpers says of the one through which instruction callbacks are made that it reads no
 * globals. Says that it does, so that they are written back. `program` is part of QEMU's path. */
static bool have_globals_written_back(const char *program)
{
    static const char wanted[] = "plugin_vcpu_udata_cb";
    enum { PAGE_BYTES = 4096 };
    FILE *maps = fopen("/proc/self/maps", "r");
    char text[1024];
    uint64_t from[64], to[64], name = 0;
    int n = 0, changed = 0;
    while (fgets(text, sizeof text, maps) && n < 64)
        if (strstr(text, program) && sscanf(text, "%" SCNx64 "-%" SCNx64, &from[n], &to[n]) == 2) n++;
    fclose(maps);
    for (int i = 0; i < n && !name; i++) {
        char *found = memmem((void *)from[i], to[i] - from[i], wanted, sizeof wanted);
        while (found && found[-1]) found = memmem(found + 1, to[i] - (uint64_t)found - 1, wanted, sizeof wanted);
        name = (uint64_t)found;
    }
    for (int i = 0; name && i < n; i++)
        for (uint64_t at = from[i]; at + 16 <= to[i]; at += 8) {
            uint32_t *flags = (uint32_t *)(at + 8);
            if (*(uint64_t *)at != name || !(*flags & 1)) continue;
            mprotect((void *)((uint64_t)flags & ~(PAGE_BYTES - 1ull)), 2 * PAGE_BYTES, PROT_READ | PROT_WRITE);
            *flags = (*flags & ~1u) | 2u;
            changed++;
        }
    return changed == 1;
}
