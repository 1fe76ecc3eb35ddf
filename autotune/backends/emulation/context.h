// One stack that code can leave and come back to.
//
// On x86-64 a switch saves the six registers that a call preserves and costs a few nanoseconds; elsewhere POSIX ucontext does
// the same with two system calls. A kernel switches at every barrier and shuffle of every thread, so this is most of the cost.
#pragma once
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__) && !defined(CUDA_ON_CPU_UCONTEXT)

extern "C" void cuda_on_cpu_switch(void** save, void* load);
asm(R"(
    .text
    .type cuda_on_cpu_switch, @function
cuda_on_cpu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size cuda_on_cpu_switch, . - cuda_on_cpu_switch
)");

namespace cuda_on_cpu {
class Context {
public:
    // `entry` must never return.
    void start(void* stack, size_t bytes, void (*entry)()) {
        auto** top = reinterpret_cast<void**>((reinterpret_cast<uintptr_t>(stack) + bytes) & ~uintptr_t{15});
        for (int i = 1; i <= 8; i++) top[-i] = nullptr;
        top[-2] = reinterpret_cast<void*>(entry);  // where `ret` goes; leaves the stack as a call would: 8 off a multiple of 16
        pointer_ = top - 8;
    }
    void switch_to(Context& next) { cuda_on_cpu_switch(&pointer_, next.pointer_); }

private:
    void* pointer_ = nullptr;
};
}  // namespace cuda_on_cpu

#else

#include <ucontext.h>

namespace cuda_on_cpu {
class Context {
public:
    void start(void* stack, size_t bytes, void (*entry)()) {
        getcontext(&context_);
        context_.uc_stack.ss_sp = stack;
        context_.uc_stack.ss_size = bytes;
        context_.uc_link = nullptr;
        makecontext(&context_, entry, 0);
    }
    void switch_to(Context& next) { swapcontext(&context_, &next.context_); }

private:
    ucontext_t context_;
};
}  // namespace cuda_on_cpu

#endif
