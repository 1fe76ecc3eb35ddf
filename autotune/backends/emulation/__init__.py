"""Compiles CUDA C++ for this CPU and runs it there, every CUDA thread as a fiber, with everything checked that can be.

    build      from rendered CUDA source to a shared library
    run        one launch of a kernel in such a library
    sanitize   launches in a child process under ThreadSanitizer or AddressSanitizer, and what these report

The text that nvcc compiles for a GPU is compiled by g++ after `cuda_on_cpu.h`, which declares the CUDA vocabulary; `cuda_on_cpu.cpp`
schedules the fibers. What a launch can find: races and missing barriers (by schedule, or for sure under ThreadSanitizer), accesses before
the first and after the last row of a matrix (where its pages end), misaligned ones, signed overflow, hangs, values of lanes that are not
there, shared memory that was never written.
What it cannot tell: speed, the exact error of fast-math instructions, limits of registers and occupancy.
"""
