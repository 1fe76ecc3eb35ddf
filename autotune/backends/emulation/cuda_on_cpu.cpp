// Runs a CUDA grid on one OS thread, every CUDA thread as a fiber.
//
// Blocks that may wait for one another (a cluster; all blocks of a cooperative launch) form a gang and are alive together; gangs run
// one after another. A fiber runs until it has to wait; then the ready fiber of lowest rank runs. Seed 0 ranks threads in index
// order; any other seed shuffles the blocks, the warps of each block and the lanes of each warp. So one warp runs as far ahead of the
// others as the barriers let it, which is what makes a missing barrier show.
#include "runtime.h"

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <vector>

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "context.h"

// Present only when ThreadSanitizer is: they tell it which order the barriers guarantee.
extern "C" {
__attribute__((weak)) void* __tsan_get_current_fiber();
__attribute__((weak)) void* __tsan_create_fiber(unsigned);
__attribute__((weak)) void __tsan_switch_to_fiber(void*, unsigned);
__attribute__((weak)) void __tsan_acquire(void*);
__attribute__((weak)) void __tsan_release(void*);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void*, size_t);
}

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace cuda_on_cpu {
namespace {

constexpr size_t kStackBytes = 128 * 1024;
constexpr size_t kStackPitch = kStackBytes + 5 * 64;  // at a power of two the tops of all stacks would share a few cache sets
constexpr uintptr_t kPageBytes = 4096;
constexpr size_t kStacksPerMapping = 64;
constexpr unsigned kSwitchOrdersNothing = 1;
constexpr size_t kMaxExchangeBytes = 16;
constexpr size_t kSharedAlignment = 16;
constexpr unsigned kWarp = 32;
constexpr size_t kMostTsanFibers = 8000;  // it knows 8128 threads

struct Block;
struct Warp;

enum class Wait { kNothing, kBlock, kWarp, kCluster, kSpin };

enum class Meeting { kSyncWarp, kExchange, kBallot };

// What a fiber runs on. ThreadSanitizer takes the two for one thread, so they stay together.
struct Host {
    void* stack;
    void* tsan;
};

struct Fiber {
    Context context;
    Host host = {};
    Block* block = nullptr;
    Warp* warp = nullptr;
    unsigned thread = 0, lane = 0, bit = 0;  // `bit` is this fiber's place in its warp's masks
    Wait wait = Wait::kNothing;
    bool cluster_arrived = false;
    unsigned cluster_phase = 0;
    bool fenced = false;
    std::vector<const void*> unordered;  // atomics seen since the last fence
    std::vector<Copy> copies;            // in flight, oldest first
    size_t landed = 0;
    unsigned copy_group = 0;
};

// Where threads of a warp meet: opens when every running lane of `mask` has arrived.
struct WarpGate {
    unsigned mask = 0, lanes = 0, waiting = 0, rounds = 0;
    Meeting meeting = Meeting::kSyncWarp;
    char order[2];  // two of everything, so that a fast lane's next round is not mixed up with this one
    unsigned votes[2];
    alignas(16) unsigned char slot[2][kWarp * kMaxExchangeBytes];
};

struct Warp {
    unsigned ready = 0, live = 0, at_barrier = 0, at_cluster = 0, spinning = 0;  // all but `live`: bits are ranks, not lanes
    Fiber* fibers = nullptr;                                                     // by rank
    WarpGate full;
    std::vector<std::unique_ptr<WarpGate>> partial;
};

struct Shared {
    const void* site;
    unsigned char* data;
    size_t bytes;
    bool used;
};

struct Cluster {
    std::vector<Block*> blocks;  // by rank
    unsigned alive = 0, arrived = 0, phase = 0;
    char order[2];
};

struct Block {
    unsigned index = 0, alive = 0, waiting = 0, rounds = 0;
    char order[2];
    Warp* warps = nullptr;
    unsigned warp_count = 0;
    Cluster* cluster = nullptr;
    std::vector<Shared> shared;  // the first is dynamic shared memory
};

void acquire_order(const void* where) {
    if (__tsan_acquire) __tsan_acquire(const_cast<void*>(where));
}
void release_order(const void* where) {
    if (__tsan_release) __tsan_release(const_cast<void*>(where));
}

unsigned char* allocate(size_t bytes) {
    void* memory = nullptr;
    if (posix_memalign(&memory, kSharedAlignment, bytes)) abort();
    return static_cast<unsigned char*>(memory);
}

// Kept from launch to launch: a stack costs a page fault or two, and a ThreadSanitizer fiber some milliseconds.
class Hosts {
public:
    Host operator[](size_t i) {
        while (hosts_.size() <= i) map();
        if (__tsan_create_fiber && !hosts_[i].tsan) hosts_[i].tsan = __tsan_create_fiber(0);
        return hosts_[i];
    }
    // After a failed launch, abandoned frames leave AddressSanitizer's marks behind.
    void forget_frames() {
        if (!__asan_unpoison_memory_region) return;
        for (Host host : hosts_) __asan_unpoison_memory_region(host.stack, kStackBytes);
    }

private:
    void map() {
        void* memory = mmap(nullptr, kStackPitch * kStacksPerMapping, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) abort();
        for (size_t i = 0; i < kStacksPerMapping; i++) {
            hosts_.push_back({static_cast<char*>(memory) + i * kStackPitch, nullptr});
            // A stack that overflows is a crash, not a corrupted neighbour.
            auto lowest_page = (reinterpret_cast<uintptr_t>(hosts_.back().stack) + kPageBytes - 1) & ~(kPageBytes - 1);
            mprotect(reinterpret_cast<void*>(lowest_page), kPageBytes, PROT_NONE);
        }
    }
    std::vector<Host> hosts_;
};

// The launch that is running: one at a time in a process.
struct Run {
    std::mutex busy;
    Hosts hosts;
    Launch launch;
    Body body = nullptr;
    void* closure = nullptr;
    std::mt19937 random;

    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    std::vector<Block> blocks;
    std::vector<Cluster> clusters;
    std::vector<unsigned char*> retired;  // shared memory of finished blocks, when ThreadSanitizer must not see it reused
    unsigned alive = 0;
    size_t first_ready = 0;  // no warp before it has a ready fiber
    bool progress = false;
    Fiber* current = nullptr;
    Context scheduler;
    void* scheduler_tsan = nullptr;
    Status status = kDone;
    char start, end;
};

Run g;
char message[512];

__attribute__((format(printf, 1, 2))) void say(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
}

// ---- Which fiber runs ----

void make_ready(Warp& warp, unsigned ranks) {
    warp.ready |= ranks;
    g.first_ready = std::min(g.first_ready, size_t(&warp - g.warps.data()));
}

Fiber* take_ready() {
    for (; g.first_ready < g.warps.size(); g.first_ready++) {
        Warp& warp = g.warps[g.first_ready];
        if (!warp.ready) continue;
        unsigned rank = unsigned(__builtin_ctz(warp.ready));
        warp.ready &= warp.ready - 1;
        return &warp.fibers[rank];
    }
    return nullptr;
}

void resume(Context& from, Fiber& next) {
    g.current = &next;
    next.wait = Wait::kNothing;
    threadIdx.x = next.thread;
    blockIdx.x = next.block->index;
    if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(next.host.tsan, kSwitchOrdersNothing);
    from.switch_to(next.context);
}

void leave_to_scheduler(Fiber& from) {
    if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(g.scheduler_tsan, kSwitchOrdersNothing);
    from.context.switch_to(g.scheduler);
}

void run_another(Fiber& from) {
    Fiber* next = take_ready();
    if (next == &from) from.wait = Wait::kNothing;
    else if (next) resume(from.context, *next);
    else leave_to_scheduler(from);
}

void suspend(Wait wait) {
    g.current->wait = wait;
    run_another(*g.current);
}

// ---- Gates ----

void open(Warp& warp, WarpGate& gate) {
    make_ready(warp, gate.waiting);
    gate.waiting = gate.lanes = 0;
    gate.rounds++;
}

void open_if_complete(Warp& warp, WarpGate& gate) {
    if (gate.lanes && gate.lanes == (gate.mask & warp.live)) open(warp, gate);
}

WarpGate& gate_of(Warp& warp, unsigned mask) {
    if (mask == ~0u) return warp.full;
    for (auto& gate : warp.partial)
        if (gate->mask == mask) return *gate;
    warp.partial.push_back(std::make_unique<WarpGate>());
    warp.partial.back()->mask = mask;
    return *warp.partial.back();
}

WarpGate& arrive(unsigned mask, Meeting meeting) {
    Fiber& me = *g.current;
    if (!(mask >> me.lane & 1)) {
        say("lane %u of block %u calls a warp operation whose mask 0x%08x does not name it", me.lane, me.block->index, mask);
        fail(message);
    }
    WarpGate& gate = gate_of(*me.warp, mask);
    if (gate.lanes && gate.meeting != meeting) fail("lanes of one warp wait for one another at different warp operations");
    gate.meeting = meeting;
    return gate;
}

void wait_at(WarpGate& gate) {
    Fiber& me = *g.current;
    gate.lanes |= 1u << me.lane;
    gate.waiting |= me.bit;
    open_if_complete(*me.warp, gate);
    suspend(Wait::kWarp);
}

void open_barrier(Block& block) {
    for (unsigned i = 0; i < block.warp_count; i++) {
        if (!block.warps[i].at_barrier) continue;
        make_ready(block.warps[i], block.warps[i].at_barrier);
        block.warps[i].at_barrier = 0;
    }
    block.waiting = 0;
    block.rounds++;
}

void complete_cluster(Cluster& cluster) {
    cluster.phase++;
    cluster.arrived = 0;
    for (Block* block : cluster.blocks)
        for (unsigned i = 0; i < block->warp_count; i++) {
            if (!block->warps[i].at_cluster) continue;
            make_ready(block->warps[i], block->warps[i].at_cluster);
            block->warps[i].at_cluster = 0;
        }
}

// A thread that returned is waited for no longer.
void leave(Fiber& me) {
    Warp& warp = *me.warp;
    Block& block = *me.block;
    Cluster& cluster = *block.cluster;
    warp.live &= ~(1u << me.lane);
    open_if_complete(warp, warp.full);
    for (auto& gate : warp.partial) open_if_complete(warp, *gate);
    g.alive--;
    block.alive--;
    if (block.waiting && block.waiting == block.alive) open_barrier(block);
    cluster.alive--;
    if (me.cluster_arrived && me.cluster_phase == cluster.phase) cluster.arrived--;
    if (cluster.arrived && cluster.arrived == cluster.alive) complete_cluster(cluster);
}

void fiber_main() {
    Fiber& me = *g.current;
    acquire_order(&g.start);
    g.body(g.closure);
    release_order(&g.end);
    leave(me);
    run_another(me);
    abort();  // nobody resumes a fiber that has left
}

// ---- Setting a gang up ----

void rank_threads(std::vector<unsigned>& warp_order, std::vector<unsigned>& lane_order) {
    std::iota(warp_order.begin(), warp_order.end(), 0u);
    for (unsigned i = 0; i < lane_order.size(); i++) lane_order[i] = i % kWarp;
    if (!g.launch.seed) return;
    std::shuffle(warp_order.begin(), warp_order.end(), g.random);
    for (size_t i = 0; i < lane_order.size(); i += kWarp) std::shuffle(&lane_order[i], &lane_order[i] + kWarp, g.random);
}

void start_fiber(Fiber& fiber, Block& block, Warp& warp, unsigned thread, unsigned rank) {
    fiber.block = &block;
    fiber.warp = &warp;
    fiber.thread = thread;
    fiber.lane = thread % kWarp;
    fiber.bit = 1u << rank;
    fiber.wait = Wait::kNothing;
    fiber.cluster_arrived = fiber.fenced = false;
    fiber.unordered.clear();
    fiber.copies.clear();
    fiber.landed = 0;
    fiber.copy_group = 0;
    fiber.context.start(fiber.host.stack, kStackBytes, fiber_main);
    warp.live |= 1u << fiber.lane;
    warp.ready |= fiber.bit;
}

void start_warps(Block& block) {
    unsigned threads = g.launch.threads;
    std::vector<unsigned> warp_order(block.warp_count), lane_order(block.warp_count * kWarp);
    rank_threads(warp_order, lane_order);
    for (unsigned place = 0; place < block.warp_count; place++) {
        Warp& warp = block.warps[place];
        warp.ready = warp.live = warp.at_barrier = warp.at_cluster = warp.spinning = 0;
        warp.full.mask = ~0u;
        warp.full.lanes = warp.full.waiting = 0;
        warp.partial.clear();
        for (unsigned rank = 0; rank < kWarp; rank++) {
            unsigned thread = warp_order[place] * kWarp + lane_order[place * kWarp + rank];
            if (thread < threads) start_fiber(warp.fibers[rank], block, warp, thread, rank);
        }
    }
}

void forget_shared(Block& block) {
    for (Shared& part : block.shared) {
        part.used = false;
        if (!__tsan_create_fiber || !part.data) continue;
        g.retired.push_back(part.data);
        part.data = nullptr;
    }
}

void start_block(Block& block, unsigned index) {
    block.index = index;
    block.alive = g.launch.threads;
    block.waiting = 0;
    forget_shared(block);
    start_warps(block);
}

void lay_out(unsigned gang, unsigned cluster) {
    unsigned warp_count = (g.launch.threads + kWarp - 1) / kWarp;
    g.fibers.resize(size_t(gang) * warp_count * kWarp);
    g.warps = std::vector<Warp>(size_t(gang) * warp_count);
    g.blocks = std::vector<Block>(gang);
    g.clusters = std::vector<Cluster>(gang / cluster);
    for (size_t i = 0; i < g.warps.size(); i++) g.warps[i].fibers = &g.fibers[i * kWarp];
    for (unsigned i = 0; i < gang; i++) {
        Block& block = g.blocks[i];
        block.warps = &g.warps[size_t(i) * warp_count];
        block.warp_count = warp_count;
        block.shared.push_back({nullptr, nullptr, g.launch.shared_bytes, false});
    }
}

// Neighbouring gangs run on different hosts, so that to ThreadSanitizer nothing orders one after the other.
void choose_hosts(size_t gang) {
    if (gang > 0 && !__tsan_create_fiber) return;
    size_t sets = __tsan_create_fiber && 2 * g.fibers.size() <= kMostTsanFibers ? 2 : 1;
    size_t first = gang % sets * g.fibers.size();
    for (size_t i = 0; i < g.fibers.size(); i++) g.fibers[i].host = g.hosts[first + i];
}

// Blocks first, first + 1, ... of the grid become the gang, at shuffled places so that any of them may run ahead.
void start_gang(unsigned first, unsigned cluster_blocks) {
    std::vector<unsigned> places(g.blocks.size());
    std::iota(places.begin(), places.end(), 0u);
    if (g.launch.seed) std::shuffle(places.begin(), places.end(), g.random);
    g.alive = unsigned(g.blocks.size()) * g.launch.threads;
    g.first_ready = 0;
    g.progress = false;
    for (Cluster& cluster : g.clusters) {
        cluster.blocks.clear();
        cluster.alive = cluster_blocks * g.launch.threads;
        cluster.arrived = 0;
    }
    for (unsigned i = 0; i < places.size(); i++) {
        Block& block = g.blocks[places[i]];
        block.cluster = &g.clusters[i / cluster_blocks];
        block.cluster->blocks.push_back(&block);
        start_block(block, first + i);
    }
}

// ---- Running it ----

void report_hang() {
    Block* stuck = nullptr;
    for (Block& block : g.blocks)
        if (block.alive && (!stuck || block.index < stuck->index)) stuck = &block;
    unsigned at[5] = {};
    for (unsigned i = 0; i < stuck->warp_count; i++)
        for (unsigned rank = 0; rank < kWarp; rank++) {
            Fiber& fiber = stuck->warps[i].fibers[rank];
            if (fiber.block == stuck && stuck->warps[i].live >> fiber.lane & 1) at[unsigned(fiber.wait)]++;
        }
    static const char* const places[] = {"", "__syncthreads()", "a warp operation whose mask names lanes that never come",
                                         "cluster_wait()", "a condition that no running thread can make true"};
    say("block %u hangs: of its %u running threads", stuck->index, stuck->alive);
    const char* separator = " ";
    for (int i = 1; i < 5; i++) {
        if (!at[i]) continue;
        size_t used = strlen(message);
        snprintf(message + used, sizeof message - used, "%s%u wait at %s", separator, at[i], places[i]);
        separator = ", ";
    }
    g.status = kHang;
}

// Threads that spin are asked only when nobody else can run; a round in which none of them got on is a hang.
bool ask_spinners() {
    bool any = false;
    for (Warp& warp : g.warps) {
        if (!warp.spinning) continue;
        any = true;
        make_ready(warp, warp.spinning);
        warp.spinning = 0;
    }
    return any;
}

void run_gang() {
    bool asked = false;
    while (g.status == kDone) {
        if (Fiber* next = take_ready()) {
            resume(g.scheduler, *next);
            continue;
        }
        if (!g.alive) return;
        if ((asked && !g.progress) || !ask_spinners()) return report_hang();
        asked = true;
        g.progress = false;
    }
}

void end_launch() {
    acquire_order(&g.end);
    g.launch.fence_count = 0;
    for (Block& block : g.blocks)
        for (Shared& part : block.shared) free(part.data);
    for (unsigned char* memory : g.retired) free(memory);
    g.retired.clear();
    g.blocks.clear();
    if (g.status != kDone) g.hosts.forget_frames();
}

// ---- Accesses beyond a matrix, where its pages end ----

struct sigaction before_ours;

const char* access_kind(const ucontext_t& context) {
#if defined(__x86_64__)
    constexpr long long kWrite = 2;  // of the page fault's error code
    return context.uc_mcontext.gregs[REG_ERR] & kWrite ? "writes" : "reads";
#else
    (void)context;
    return "accesses memory";
#endif
}

// Runs on the stack of the fiber that strayed, which is abandoned with it, as after any other fault.
void on_segmentation_fault(int, siginfo_t* info, void* context) {
    auto address = reinterpret_cast<size_t>(info->si_addr);
    for (size_t i = 0; i < g.launch.fence_count; i++) {
        const Fence& fence = g.launch.fences[i];
        if (address < fence.begin || address >= fence.end) continue;
        bool below = address < fence.first;
        char distance[40] = "right";
        if (size_t bytes = below ? fence.first - address : address - fence.last) snprintf(distance, sizeof distance, "%zu bytes", bytes);
        say("thread %u of block %u %s outside the %s, %s %s", threadIdx.x, blockIdx.x, access_kind(*static_cast<ucontext_t*>(context)),
            fence.name, distance, below ? "before its first element" : "after its last element");
        fail(message);
    }
    sigaction(SIGSEGV, &before_ours, nullptr);  // a fault of another kind happens again when this returns, and is not ours
}

void watch_fences() {
    struct sigaction ours = {}, now = {};
    sigaction(SIGSEGV, nullptr, &now);
    if (now.sa_sigaction == on_segmentation_fault) return;
    before_ours = now;
    ours.sa_sigaction = on_segmentation_fault;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER;  // the handler is never returned from
    sigaction(SIGSEGV, &ours, nullptr);
}

Status check(const Launch& launch, const Compiled& compiled) {
    if (launch.threads == 0 || launch.threads > 1024) return refuse("a block has 1 to 1024 threads");
    if (launch.blocks == 0) return refuse("a grid has at least one block");
    if (compiled.threads && launch.threads != compiled.threads) {
        say("the kernel was compiled for blocks of %u threads and is launched with %u", compiled.threads, launch.threads);
        return kRefused;
    }
    if (launch.cluster == 0 || launch.cluster > 16) return refuse("a cluster has 1 to 16 blocks");
    if (compiled.cluster && launch.cluster != compiled.cluster) {
        say("the kernel was compiled for clusters of %u blocks and is launched with %u", compiled.cluster, launch.cluster);
        return kRefused;
    }
    if (launch.blocks % launch.cluster) {
        say("a grid of %u blocks is no multiple of the cluster of %u", launch.blocks, launch.cluster);
        return kRefused;
    }
    size_t together = size_t(launch.cooperative ? launch.blocks : launch.cluster) * ((launch.threads + kWarp - 1) / kWarp * kWarp);
    if (__tsan_create_fiber && together > kMostTsanFibers) return refuse("ThreadSanitizer cannot follow more than 8000 threads at once");
    return kDone;
}

void unwrite(unsigned char* memory, size_t bytes) {
    for (size_t done = 0; done < bytes; done += sizeof kUnwritten)
        memcpy(memory + done, kUnwritten, std::min(sizeof kUnwritten, bytes - done));
}

Shared& first_use(Shared& part) {
    if (!part.data) part.data = allocate(part.bytes);
    unwrite(part.data, part.bytes);
    part.used = true;
    return part;
}

Shared& shared_of(Block& block, const void* site, size_t bytes) {
    for (Shared& part : block.shared)
        if (part.site == site) return part.used ? part : first_use(part);
    block.shared.push_back({site, nullptr, bytes, false});
    return first_use(block.shared.back());
}

}  // namespace

// ---- What the vocabulary calls ----

Status refuse(const char* why) {
    say("%s", why);
    return kRefused;
}

void fail(const char* why) {
    if (why != message) say("%s", why);
    g.status = kFault;
    leave_to_scheduler(*g.current);
    abort();  // nobody resumes a fiber of a failed launch
}

int lane() { return int(g.current->lane); }

void sync_block() {
    Fiber& me = *g.current;
    Block& block = *me.block;
    const char* order = &block.order[block.rounds & 1];
    release_order(order);
    me.warp->at_barrier |= me.bit;
    if (++block.waiting == block.alive) open_barrier(block);
    suspend(Wait::kBlock);
    acquire_order(order);
}

void sync_warp(unsigned mask) {
    WarpGate& gate = arrive(mask, Meeting::kSyncWarp);
    const char* order = &gate.order[gate.rounds & 1];
    release_order(order);
    wait_at(gate);
    acquire_order(order);
}

// A shuffle moves a register; unlike __syncwarp() it orders no memory, so ThreadSanitizer is not told.
void exchange(unsigned mask, int source, const void* mine, void* theirs, size_t size) {
    WarpGate& gate = arrive(mask, Meeting::kExchange);
    unsigned char* slot = gate.slot[gate.rounds & 1];
    if (!gate.lanes) unwrite(slot, kWarp * size);
    memcpy(slot + g.current->lane * size, mine, size);
    wait_at(gate);
    memcpy(theirs, slot + unsigned(source & 31) * size, size);
}

unsigned ballot(unsigned mask, bool vote) {
    WarpGate& gate = arrive(mask, Meeting::kBallot);
    unsigned& votes = gate.votes[gate.rounds & 1];
    if (!gate.lanes) votes = 0;
    votes |= unsigned(vote) << g.current->lane;
    wait_at(gate);
    return votes;
}

void* shared_array(const void* site, size_t bytes) { return shared_of(*g.current->block, site, bytes).data; }
void* dynamic_shared() { return shared_of(*g.current->block, nullptr, 0).data; }

unsigned cluster_size() { return unsigned(g.current->block->cluster->blocks.size()); }
unsigned cluster_rank() { return g.current->block->index % cluster_size(); }

void cluster_arrive(bool release) {
    Fiber& me = *g.current;
    Cluster& cluster = *me.block->cluster;
    if (me.cluster_arrived) fail("a thread arrives twice at the cluster barrier without waiting in between");
    if (release || me.fenced) release_order(&cluster.order[cluster.phase & 1]);
    me.cluster_arrived = true;
    me.cluster_phase = cluster.phase;
    if (++cluster.arrived == cluster.alive) complete_cluster(cluster);
}

void cluster_wait() {
    Fiber& me = *g.current;
    Cluster& cluster = *me.block->cluster;
    if (!me.cluster_arrived) fail("a thread waits at the cluster barrier without having arrived");
    if (me.cluster_phase == cluster.phase) {
        me.warp->at_cluster |= me.bit;
        suspend(Wait::kCluster);
    }
    me.cluster_arrived = false;
    acquire_order(&cluster.order[me.cluster_phase & 1]);
}

void* peer_address(const void* mine, unsigned rank) {
    Block& block = *g.current->block;
    if (rank >= cluster_size()) fail("a thread names a block that its cluster does not have");
    Block& peer = *block.cluster->blocks[rank];
    auto* address = static_cast<const unsigned char*>(mine);
    for (Shared& part : block.shared) {
        if (!part.used || address < part.data || address >= part.data + part.bytes) continue;
        size_t offset = size_t(address - part.data);
        if (!peer.alive) fail("a thread reaches into the shared memory of a block that has already returned");
        return shared_of(peer, part.site, part.bytes).data + offset;
    }
    fail("a cluster exchange names an address that is not in this block's shared memory");
}

void spin_wait() {
    Fiber& me = *g.current;
    me.warp->spinning |= me.bit;
    suspend(Wait::kSpin);
}

void spin_done() { g.progress = true; }

void fence() {
    Fiber& me = *g.current;
    me.fenced = true;
    for (const void* address : me.unordered) acquire_order(address);
    me.unordered.clear();
}
void before_atomic(const void* address) {
    if (g.current->fenced) release_order(address);
}
void after_atomic(const void* address) {
    if (__tsan_acquire) g.current->unordered.push_back(address);
}
void release(const void* address) { release_order(address); }
void acquire(const void* address) { acquire_order(address); }

Copy& copy_issue() {
    Fiber& me = *g.current;
    me.copies.emplace_back();
    me.copies.back().group = me.copy_group;
    return me.copies.back();
}

void copy_commit() { g.current->copy_group++; }

const Copy* copy_landing(unsigned groups_in_flight) {
    Fiber& me = *g.current;
    if (me.landed < me.copies.size() && me.copies[me.landed].group + groups_in_flight < me.copy_group) return &me.copies[me.landed++];
    me.copies.erase(me.copies.begin(), me.copies.begin() + long(me.landed));
    me.landed = 0;
    return nullptr;
}

Status run(const Launch& launch, const Compiled& compiled, Body body, void* closure) {
    std::lock_guard<std::mutex> one_at_a_time(g.busy);
    if (Status refused = check(launch, compiled)) return refused;
    g.launch = launch;
    g.body = body;
    g.closure = closure;
    g.random.seed(launch.seed);
    g.status = kDone;
    if (launch.fence_count) watch_fences();
    if (__tsan_get_current_fiber) g.scheduler_tsan = __tsan_get_current_fiber();
    release_order(&g.start);
    blockDim = {launch.threads, 1, 1};
    gridDim = {launch.blocks, 1, 1};
    unsigned gang = launch.cooperative ? launch.blocks : launch.cluster;
    lay_out(gang, launch.cluster);
    std::vector<unsigned> order(launch.blocks / gang);
    std::iota(order.begin(), order.end(), 0u);
    if (launch.seed) std::shuffle(order.begin(), order.end(), g.random);
    for (size_t i = 0; i < order.size() && g.status == kDone; i++) {
        choose_hosts(i);
        start_gang(order[i] * gang, launch.cluster);
        run_gang();
    }
    end_launch();
    return g.status;
}

}  // namespace cuda_on_cpu

extern "C" const char* cuda_on_cpu_message() { return cuda_on_cpu::message; }

// ---- UndefinedBehaviorSanitizer's calls, answered by ending the launch instead of the process ----

namespace {
struct SourceLocation {
    const char* file;
    unsigned line, column;
};
struct TypeDescriptor {
    unsigned short kind, info;
    char name[1];  // quoted
};
struct Mismatch {
    SourceLocation at;
    const TypeDescriptor* type;
    unsigned char log_alignment, kind;
};
struct Overflow {
    SourceLocation at;
    const TypeDescriptor* type;
};
struct OutOfBounds {
    SourceLocation at;
    const TypeDescriptor *array, *index;
};

[[noreturn]] void fault(const SourceLocation& at, const char* format, ...) {
    char what[300];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    cuda_on_cpu::say("%s:%u: %s (thread %u of block %u)", at.file, at.line, what, threadIdx.x, blockIdx.x);
    cuda_on_cpu::fail(cuda_on_cpu::message);
}
}  // namespace

extern "C" {
void __ubsan_handle_type_mismatch_v1_abort(Mismatch* data, const void* pointer) {
    unsigned alignment = 1u << data->log_alignment;
    if (!pointer) fault(data->at, "null pointer to %s", data->type->name);
    fault(data->at, "misaligned access: %s needs %u-byte alignment and lies %u bytes after one", data->type->name, alignment,
          unsigned(reinterpret_cast<uintptr_t>(pointer) % alignment));
}
void __ubsan_handle_out_of_bounds_abort(OutOfBounds* data, void* index) {
    fault(data->at, "index %lld is out of bounds for %s", (long long)reinterpret_cast<intptr_t>(index), data->array->name);
}
void __ubsan_handle_add_overflow_abort(Overflow* data, void*, void*) { fault(data->at, "addition overflows %s", data->type->name); }
void __ubsan_handle_sub_overflow_abort(Overflow* data, void*, void*) { fault(data->at, "subtraction overflows %s", data->type->name); }
void __ubsan_handle_mul_overflow_abort(Overflow* data, void*, void*) { fault(data->at, "multiplication overflows %s", data->type->name); }
void __ubsan_handle_negate_overflow_abort(Overflow* data, void*) { fault(data->at, "negation overflows %s", data->type->name); }
void __ubsan_handle_divrem_overflow_abort(Overflow* data, void*, void*) { fault(data->at, "division by zero or overflow of %s", data->type->name); }
}
