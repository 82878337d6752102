#define _GNU_SOURCE
#include "checker.h"

#include <inttypes.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "maps.h"

/* The signal frame (Linux, asm/sigcontext.h): restorer address, then the ucontext, its registers 40 bytes into it. */
enum { UCONTEXT_RIP = 8 + 40 + 16 * 8, TRAP_FLAG = 0x100 };

static size_t read_memory(pid_t pid, uint64_t address, void *into, size_t size)
{
    struct iovec local = {into, size}, remote = {(void *)address, size};
    ssize_t done = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (done < 0 && size > 1) { /* may run over the end of a mapping */
        size_t here = 4096 - (address & 4095);
        if (here < size)
            return read_memory(pid, address, into, here);
    }
    return done < 0 ? 0 : (size_t)done;
}

static uint64_t read_word(pid_t pid, uint64_t address)
{
    uint64_t word = 0;
    read_memory(pid, address, &word, sizeof word);
    return word;
}

void checker_prepare(struct thread *thread, const struct user_regs_struct *registers)
{
    unsigned char bytes[16] = {0};
    size_t count = read_memory(thread->tid, registers->rip, bytes, sizeof bytes);
    thread->before = *registers;
    thread->kind = instruction_kind(bytes, count);
    thread->prepared = 1;
}

static const char *file_of(const struct thread *thread, uint64_t pc, uint64_t *offset)
{
    const struct mapping *mapping = maps_find(thread->process, pc);
    *offset = mapping != NULL ? pc - mapping->start + mapping->offset : pc;
    return mapping != NULL ? mapping->path : "";
}

static int is_switch(const struct rules *rules, const char *file, uint64_t offset)
{
    for (int k = 0; k < rules->switch_count; k++) {
        const struct range *range = &rules->switches[k];
        if (strcmp(range->file, base_name(file)) == 0 && range->start <= offset && offset < range->end)
            return 1;
    }
    return 0;
}

static int is_unwinder(const struct rules *rules, const char *file)
{
    for (int k = 0; k < rules->unwinder_count; k++)
        if (strncmp(base_name(file), rules->unwinders[k], strlen(rules->unwinders[k])) == 0)
            return 1;
    return 0;
}

static void note_mismatch(struct thread *thread, uint64_t actual, const char *file, uint64_t offset, struct counts *counts)
{
    if (counts->mismatches < MOST_MISMATCHES) {
        struct mismatch *next = &counts->first[counts->mismatches];
        *next = (struct mismatch){.tid = thread->tid, .pc = thread->before.rip, .actual = actual, .offset = offset,
                                  .expected = model_top(&thread->model)};
        snprintf(next->file, sizeof next->file, "%s", file);
    }
    counts->mismatches++;
}

static void finish_return(struct thread *thread, uint64_t address, const struct rules *rules, struct counts *counts)
{
    uint64_t place = thread->before.rsp, offset;
    counts->returns++;
    enum verdict verdict = model_return(&thread->model, address);
    if (verdict == RETURN_MATCHES)
        return;
    const char *file = file_of(thread, thread->before.rip, &offset);
    if (is_switch(rules, file, offset)) {
        model_switch(&thread->model, address, place);
        counts->switches++;
    } else if (verdict == RETURN_UNKNOWN) {
        counts->unknown_returns++;
    } else if (is_unwinder(rules, file)) {
        counts->unwound += model_unwind(&thread->model, place + 8);
    } else {
        note_mismatch(thread, address, file, offset, counts);
        /* Go on as if the shadow stack had been right, to find the next independent mismatch. */
        model_unwind(&thread->model, place + 8);
    }
}

static void finish_other(struct thread *thread, uint64_t rsp, const struct rules *rules, struct counts *counts)
{
    uint64_t offset;
    if (!model_is_left_behind(&thread->model, rsp))
        return;
    const char *file = file_of(thread, thread->before.rip, &offset);
    if (is_unwinder(rules, file) && !is_switch(rules, file, offset))
        counts->unwound += model_unwind(&thread->model, rsp);
}

static void finish_syscall(struct thread *thread)
{
    switch (thread->before.rax) {
    case SYS_rt_sigreturn:
        model_sigreturn(&thread->model);
        break;
    case SYS_mmap: case SYS_munmap: case SYS_mremap: case SYS_mprotect: case SYS_execve: case SYS_execveat:
        maps_forget();
        break;
    }
}

/* pushfq has stored the trap flag that stepping sets; the program must not see it. */
static void hide_trap_flag(const struct thread *thread, uint64_t rsp)
{
    uint64_t flags = read_word(thread->tid, rsp);
    if (flags & TRAP_FLAG)
        ptrace(PTRACE_POKEDATA, thread->tid, (void *)rsp, (void *)(flags & ~(uint64_t)TRAP_FLAG));
}

void checker_finish(struct thread *thread, const struct user_regs_struct *registers, const struct rules *rules,
                    struct counts *counts)
{
    thread->prepared = 0;
    counts->steps++;
    switch (thread->kind) {
    case KIND_CALL:
        counts->calls++;
        model_call(&thread->model, read_word(thread->tid, registers->rsp), registers->rsp);
        break;
    case KIND_RETURN:
        finish_return(thread, registers->rip, rules, counts);
        break;
    case KIND_SYSCALL:
        finish_syscall(thread);
        break;
    case KIND_PUSH_FLAGS:
        hide_trap_flag(thread, registers->rsp);
        break;
    case KIND_OTHER:
        finish_other(thread, registers->rsp, rules, counts);
        break;
    }
}

void checker_signal(struct thread *thread, const struct user_regs_struct *registers, struct counts *counts)
{
    static const unsigned char restorer_code[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
    unsigned char code[sizeof restorer_code];
    uint64_t restorer = read_word(thread->tid, registers->rsp);
    if (read_memory(thread->tid, restorer, code, sizeof code) != sizeof code)
        return;
    if (memcmp(code, restorer_code, sizeof code) != 0)
        return;
    if (read_word(thread->tid, registers->rsp + UCONTEXT_RIP) != thread->before.rip)
        return;
    counts->signals++;
    thread->prepared = 0;
    model_signal(&thread->model, restorer, registers->rsp);
}

static void print_text(FILE *file, const char *text)
{
    for (; *text != 0; text++)
        if (*text == '"' || *text == '\\' || (unsigned char)*text < ' ')
            fprintf(file, "\\u%04x", (unsigned char)*text);
        else
            fputc(*text, file);
}

void print_counts(FILE *file, const struct counts *counts, int exit_status, int limited)
{
    fprintf(file, "{\"steps\": %" PRIu64 ", \"calls\": %" PRIu64 ", \"returns\": %" PRIu64 ", ", counts->steps,
            counts->calls, counts->returns);
    fprintf(file, "\"unknown_returns\": %" PRIu64 ", \"unwound\": %" PRIu64 ", \"switches\": %" PRIu64 ", ",
            counts->unknown_returns, counts->unwound, counts->switches);
    fprintf(file, "\"signals\": %" PRIu64 ", \"threads\": %" PRIu64 ", ", counts->signals, counts->threads);
    fprintf(file, "\"exit\": %d, \"limited\": %s, ", exit_status, limited ? "true" : "false");
    fprintf(file, "\"mismatch_count\": %" PRIu64 ", \"mismatches\": [", counts->mismatches);
    for (uint64_t k = 0; k < counts->mismatches && k < MOST_MISMATCHES; k++) {
        const struct mismatch *m = &counts->first[k];
        fprintf(file, "%s{\"tid\": %d, \"pc\": %" PRIu64 ", \"expected\": %" PRIu64 ", \"actual\": %" PRIu64 ", \"file\": \"",
                k != 0 ? ", " : "", m->tid, m->pc, m->expected, m->actual);
        print_text(file, m->file);
        fprintf(file, "\", \"offset\": %" PRIu64 "}", m->offset);
    }
    fputs("]}\n", file);
}
