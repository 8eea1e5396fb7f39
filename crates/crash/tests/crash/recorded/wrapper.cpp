// A wrapper around persistent words, and two callers that forget the flush.
#define LAPIS_TRACE_IMPLEMENTATION
#include "lapis_trace.h"

struct word {
    uint64_t value;
    char rest[56];
    void store(uint64_t to, int line) {
        value = to;
        LAPIS_STORE_AT(&value, sizeof value, "caller.cpp", line);
    }
    void persist(int line) { LAPIS_PERSIST_AT(&value, sizeof value, "caller.cpp", line); }
};

alignas(64) static word words[3];

int main(int, char **arguments) {
    if (LAPIS_TRACE_BEGIN(arguments[1], words, sizeof words) != 0) return 1;
    LAPIS_OP_BEGIN(1);
    words[0].store(1, __LINE__);
    words[0].persist(__LINE__);
    words[1].store(2, __LINE__); /* not flushed */
    words[2].store(3, __LINE__); /* not flushed */
    LAPIS_OP_END(1);
    return LAPIS_TRACE_END();
}
