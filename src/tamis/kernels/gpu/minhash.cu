// MinHash signatures: the same bits as tamis.kernels.minhash_definition.
//
// A block of WARPS warps makes the signature of one text, in tiles: each warp takes the next tile, brings its bytes (or
// the hashes of its words) into shared memory, and each lane rolls the hash over a run of n-grams.
//
// Set by the caller: NGRAM, NUM_HASHES, BITS (32 or 64), VALUE_BITS (0: the classic scheme), BY_WORDS, WARPS.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#if BITS == 32
typedef u32 value_t;
#else
typedef u64 value_t;
#endif
#if BY_WORDS
typedef u64 item_t;
#else
typedef u32 item_t;
#endif

#define K0 0x9E3779B97F4A7C15ull
#define K1 0xD6E8FEB86659FD93ull
#define FULL ((value_t)~0ull)
#define IS_FAST (VALUE_BITS > 0)

// n-grams that begin in a tile: 36 for each lane. A run of 36 bytes is 9 words of 32 bits, so that the lanes of a warp
// read from different banks of the shared memory.
#define RUN 36
#define TILE (32 * RUN)
#define VIEW (BY_WORDS ? TILE + NGRAM : TILE + 4 * NGRAM)
#define ALIGNED(bytes) (((int)(bytes) + 15) / 16 * 16)
#define RAW_BYTES (BY_WORDS ? 0 : ALIGNED(VIEW + 16))
#define ITEM_BYTES ALIGNED((VIEW + 64) * sizeof(item_t))
#define HASH_BYTES (IS_FAST ? 0 : ALIGNED((TILE + 64) * sizeof(value_t)))
#define WARP_BYTES (RAW_BYTES + ITEM_BYTES + HASH_BYTES)

// The classic scheme: each lane has the same number of permutations; a few that are left over are computed by each lane
// for its own n-grams.
#define LEFT_OVER (NUM_HASHES % 32 <= 8 ? NUM_HASHES % 32 : 0)
#define LEFT_SPACE (LEFT_OVER > 0 ? LEFT_OVER : 1)
#define EVEN (NUM_HASHES - LEFT_OVER)
#define PER_LANE ((EVEN + 31) / 32 > 0 ? (EVEN + 31) / 32 : 1)
#define TURNS ((PER_LANE + 7) / 8)
#define GROUP ((PER_LANE + TURNS - 1) / TURNS)

// A text is given up when its length times the number of rounds is larger.
#define ROUND_LIMIT (1ll << 22)

__device__ __forceinline__ u64 mix(u64 one, u64 other) { return (one * other) ^ __umul64hi(one, other); }

__device__ __forceinline__ u32 place_of(u64 h) { return __umulhi((u32)(h >> 32), (u32)NUM_HASHES); }

__device__ __forceinline__ value_t value_of(u64 h, u64 number) {
#if BITS == 32
    return (u32)h;
#else
    return (number << VALUE_BITS) | (((h << 32) | (h >> 32)) >> (64 - (IS_FAST ? VALUE_BITS : 32)));
#endif
}

__device__ __forceinline__ value_t upper_bits(u64 h) {
#if BITS == 32
    return (u32)(h >> 32);
#else
    return h;
#endif
}

__device__ __forceinline__ void keep_least(value_t* place, value_t value) { atomicMin(place, value); }

__device__ __forceinline__ value_t least_of_three(value_t a, value_t b, value_t c) {
#if BITS == 32 && __CUDA_ARCH__ >= 900
    return __vimin3_u32(a, b, c);
#else
    return min(a, min(b, c));
#endif
}

struct Task {
    u64 number;  // of the round
    u64 multiplier, power, key;
    value_t* sketch;
    const u8* filled;
    value_t* hashes;  // of the classic scheme, for the whole warp
    const value_t *factors, *terms;
    value_t left_factors[LEFT_SPACE], left_terms[LEFT_SPACE];
    value_t least[LEFT_SPACE];
};

// Take the hash of one n-gram.
template <bool LATER>
__device__ __forceinline__ void take(Task& task, u64 h, int index) {
#if IS_FAST
    if (!LATER) {
        keep_least(task.sketch + place_of(h), value_of(h, 0));
        return;
    }
    u64 salt = task.number * K0;
    h = mix(h ^ salt, K1 ^ salt);
    if (task.number >= NUM_HASHES) {
        task.least[0] = min(task.least[0], value_of(h, task.number));
        return;
    }
    u32 place = place_of(h);
    if (!task.filled[place]) keep_least(task.sketch + place, value_of(h, task.number));
#else
    value_t x = upper_bits(h);
    task.hashes[index] = x;
#pragma unroll
    for (int i = 0; i < LEFT_OVER; i++)
        task.least[i] = min(task.least[i], (value_t)(task.left_factors[i] * x + task.left_terms[i]));
#endif
}

// The n-grams that begin at `count` items.
template <bool LATER, typename Item>
__device__ __forceinline__ void roll(Task& task, const Item* items, int count, int run, int lane) {
    int first = lane * run;
    int own = min(run, count - first);
    if (own <= 0) return;
    u64 h = 0;
    const Item* tail = items + first;
    const Item* head = tail + NGRAM;
#pragma unroll 8
    for (int i = 0; i < NGRAM; i++) h = h * task.multiplier + tail[i];
    for (int i = 0; i < own; i++) {
        take<LATER>(task, mix(h ^ task.key, K1), first + i);
        h = h * task.multiplier + ((u64)head[i] - (u64)tail[i] * task.power);
    }
}

template <typename Item>
__device__ __forceinline__ u64 short_text(const Task& task, const Item* items, int count) {
    u64 h = count + 1;
    for (int i = 0; i < count; i++) h = h * task.multiplier + items[i];
    return mix(h ^ task.key, K1);
}

// Bring the characters that begin in a view of some bytes from `raw` into `items`. Returns how many there are; `starts`
// counts those that begin before the byte `inside`.
__device__ __forceinline__ int decode(const u32* raw, int view, int inside, u32* items, int lane, int& starts) {
    int total = 0;
    starts = 0;
    for (int base = 0; base < view; base += 128) {
        int at = base + 4 * lane;
        u32 word = 0, next = 0, leads = 0;
        if (at < view) {
            word = raw[at >> 2];
            next = raw[(at >> 2) + 1];
            // A byte continues a character if its upper bits are 10.
            leads = (~(word & ~(word << 1)) & 0x80808080u) >> 7;
            if (view - at < 4) leads &= (1u << (8 * (view - at))) - 1u;
        }
        int own = __popc(leads), before = own;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            int other = __shfl_up_sync(~0u, before, step);
            if (lane >= step) before += other;
        }
        int here = __shfl_sync(~0u, before, 31);
        int place = total + before - own;
        int counted = own;
        if (at + 4 > inside) counted = at >= inside ? 0 : __popc(leads & ((1u << (8 * (inside - at))) - 1u));
        starts += counted;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (leads >> (8 * k) & 1u) {
                u32 bytes = __funnelshift_r(word, next, 8 * k), lead = bytes & 255u;
                u32 kept = lead < 0x80u ? 0xFFu : lead < 0xE0u ? 0xFFFFu : lead < 0xF0u ? 0xFFFFFFu : ~0u;
                items[place++] = bytes & kept;
            }
        }
        total += here;
    }
    starts = __reduce_add_sync(~0u, starts);
    __syncwarp();
    return total;
}

#if !IS_FAST
// All permutations but those left over, for the hashes of a tile.
__device__ __forceinline__ void permute(Task& task, int count, int lane) {
    int padded = (count + 3) & ~3;
    if (lane < padded - count) task.hashes[count + lane] = task.hashes[0];
    __syncwarp();
    for (int group = 0; group < EVEN; group += 32 * GROUP) {
        value_t factor[GROUP], term[GROUP], least[GROUP];
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            int j = min(group + 32 * i + lane, NUM_HASHES - 1);
            factor[i] = task.factors[j];
            term[i] = task.terms[j];
            least[i] = FULL;
        }
        for (int at = 0; at < padded; at += 4) {
#if BITS == 32
            uint4 four = *(const uint4*)(task.hashes + at);
            value_t x0 = four.x, x1 = four.y, x2 = four.z, x3 = four.w;
#else
            value_t x0 = task.hashes[at], x1 = task.hashes[at + 1], x2 = task.hashes[at + 2], x3 = task.hashes[at + 3];
#endif
#pragma unroll
            for (int i = 0; i < GROUP; i++) {
                least[i] = least_of_three(least[i], factor[i] * x0 + term[i], factor[i] * x1 + term[i]);
                least[i] = least_of_three(least[i], factor[i] * x2 + term[i], factor[i] * x3 + term[i]);
            }
        }
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            int j = group + 32 * i + lane;
            if (j < EVEN) keep_least(task.sketch + j, least[i]);
        }
    }
    __syncwarp();
}
#endif

// One round over a text: every warp takes each WARPS-th tile.
template <bool LATER>
__device__ __forceinline__ void one_round(
    Task& task, const u8* data, i64 data_bytes, const u64* words, i64 begin, i64 end, char* memory, int warp, int lane
) {
    item_t* items = (item_t*)(memory + RAW_BYTES);
    task.hashes = (value_t*)(memory + RAW_BYTES + ITEM_BYTES);
#pragma unroll
    for (int i = 0; i < LEFT_SPACE; i++) task.least[i] = FULL;
    for (i64 tile = warp; tile == 0 || begin + tile * TILE < end; tile += WARPS) {
        i64 first = begin + tile * TILE;
        int count, run;
#if BY_WORDS
        int view = (int)min((i64)(TILE + NGRAM - 1), end - first);
        for (int i = lane; i < view; i += 32) items[i] = words[first + i];
        __syncwarp();
        count = view - NGRAM + 1;
        bool is_short = tile == 0 && view < NGRAM;
        run = ((max(count, 0) + 31) / 32) | 1;
        if (is_short) {
            if (lane == 0) take<LATER>(task, short_text(task, items, view), 0);
            count = 1;
        } else {
            roll<LATER>(task, items, count, run, lane);
        }
#else
        u32* raw = (u32*)memory;
        int inside = (int)min((i64)TILE, end - first);
        int view = (int)min((i64)(inside + 4 * (NGRAM - 1)), end - first);
        int loaded = (int)min((i64)(view + 4), end - first);
        // Words of 32 bits at addresses that are multiples of four. Each contains at least one byte of the texts.
        const u8* source = data + first;
        int shift = (int)((u64)source & 3);
        const u32* aligned = (const u32*)(source - shift);
        const u32* last = (const u32*)((u64)(data + data_bytes - 1) & ~3ull);
        u32 high = 0;
        for (int i = lane; 4 * i < loaded; i += 32) {
            u32 low = aligned[i], next = aligned + i < last ? aligned[i + 1] : 0u;
            u32 word = __funnelshift_r(low, next, 8 * shift);
            raw[i] = word;
            if (loaded - 4 * i < 4) word &= (1u << (8 * (loaded - 4 * i))) - 1u;
            high |= word & 0x80808080u;
        }
        __syncwarp();
        if (!__any_sync(~0u, high != 0)) {
            const u8* bytes = (const u8*)raw;
            count = (int)min((i64)inside, end - first - NGRAM + 1);
            run = 4 * (((max(count, 0) + 127) / 128) | 1);
            if (tile == 0 && view < NGRAM) {
                if (lane == 0) take<LATER>(task, short_text(task, bytes, view), 0);
                count = 1;
            } else {
                roll<LATER>(task, bytes, count, run, lane);
            }
        } else {
            int starts;
            int total = decode(raw, view, inside, items, lane, starts);
            count = min(starts, total - NGRAM + 1);
            run = ((max(count, 0) + 31) / 32) | 1;
            if (tile == 0 && total < NGRAM) {
                if (lane == 0) take<LATER>(task, short_text(task, items, total), 0);
                count = 1;
            } else {
                roll<LATER>(task, items, count, run, lane);
            }
        }
#endif
        __syncwarp();
#if !IS_FAST
        if (count > 0) permute(task, count, lane);
#endif
        __syncwarp();
    }
#if IS_FAST
    if (LATER && task.number >= NUM_HASHES && task.least[0] != FULL)
        keep_least(task.sketch + (task.number - NUM_HASHES), task.least[0]);
#else
#pragma unroll
    for (int i = 0; i < LEFT_OVER; i++) {
        value_t least = task.least[i];
#pragma unroll
        for (int step = 16; step > 0; step /= 2) least = min(least, __shfl_xor_sync(~0u, least, step));
        if (lane == 0) keep_least(task.sketch + EVEN + i, least);
    }
#endif
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) signatures(
    const u8* data, i64 data_bytes, const u64* words, const i64* offsets, const i64* rows, u64 multiplier, u64 power,
    u64 key, const value_t* factors, const value_t* terms, value_t* out, u8* unfinished
) {
    extern __shared__ __align__(16) char memory[];
    i64 row = rows[blockIdx.x];
    i64 begin = offsets[row], end = offsets[row + 1];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    char* own = memory + warp * WARP_BYTES;
    value_t* sketch = (value_t*)(memory + WARPS * WARP_BYTES);
    u8* filled = (u8*)(sketch + NUM_HASHES);
    for (int j = threadIdx.x; j < NUM_HASHES; j += 32 * WARPS) {
        sketch[j] = FULL;
        filled[j] = 0;
    }
    __syncthreads();
    Task task;
    task.number = 0;
    task.multiplier = multiplier;
    task.power = power;
    task.key = key;
    task.sketch = sketch;
    task.filled = filled;
    task.factors = factors;
    task.terms = terms;
#if !IS_FAST
#pragma unroll
    for (int i = 0; i < LEFT_OVER; i++) {
        task.left_factors[i] = factors[EVEN + i];
        task.left_terms[i] = terms[EVEN + i];
    }
#endif
    one_round<false>(task, data, data_bytes, words, begin, end, own, warp, lane);
    __syncthreads();
#if IS_FAST
    const value_t ones = (value_t)(~0ull >> (64 - VALUE_BITS));
    while (true) {
        int empty = 0;
        for (int j = threadIdx.x; j < NUM_HASHES; j += 32 * WARPS) {
            bool is_empty = (sketch[j] & ones) == ones;
            if (is_empty) sketch[j] = FULL;
            filled[j] = !is_empty;
            empty |= is_empty;
        }
        if (!__syncthreads_or(empty)) break;
        task.number++;
        while (task.number >= NUM_HASHES && task.number < 2 * NUM_HASHES && filled[task.number - NUM_HASHES])
            task.number++;
        if (task.number >= 2 * NUM_HASHES) break;
        if ((end - begin) > TILE && (end - begin) * (i64)task.number > ROUND_LIMIT) {
            // A long text that repeats itself: the caller leaves it to the processor.
            if (threadIdx.x == 0) unfinished[row] = 1;
            break;
        }
        one_round<true>(task, data, data_bytes, words, begin, end, own, warp, lane);
        __syncthreads();
    }
#endif
    for (int j = threadIdx.x; j < NUM_HASHES; j += 32 * WARPS) out[row * NUM_HASHES + j] = sketch[j];
}
