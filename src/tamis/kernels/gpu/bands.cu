// The hash of each band of each signature: the same bits as tamis.kernels.minhash_definition.band_hashes.
//
// Set by the caller: BITS (32 or 64).

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
#if BITS == 32
typedef u32 value_t;
#else
typedef u64 value_t;
#endif

extern "C" __global__ void bands(const value_t* signatures, i64 count, i64 band_count, i64 band_size, u64* hashes) {
    i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) return;
    u64 h = (u64)(at % band_count + 1) * 0x9E3779B97F4A7C15ull;
    for (i64 i = 0; i < band_size; i++) {
        h = (h ^ (u64)signatures[at * band_size + i]) * 0xD6E8FEB86659FD93ull;
        h ^= h >> 32;
    }
    h *= 0xA0761D6478BD642Full;
    hashes[at] = h ^ (h >> 29);
}
