// The words of texts, as str.split() gives them: where they begin, and their hashes.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define K0 0x9E3779B97F4A7C15ull
#define K1 0xD6E8FEB86659FD93ull
#define K2 0xA0761D6478BD642Full
#define K3 0xE7037ED1A0B428DBull

__device__ __forceinline__ u64 mix(u64 one, u64 other) { return (one * other) ^ __umul64hi(one, other); }

// Whether a space of three bytes begins with these.
__device__ __forceinline__ bool is_wide_space(u8 first, u8 second, u8 third) {
    if (first == 0xE2)
        return second == 0x80 ? third <= 0x8A || third == 0xA8 || third == 0xA9 || third == 0xAF
                              : second == 0x81 && third == 0x9F;
    return (first == 0xE3 && second == 0x80 && third == 0x80) || (first == 0xE1 && second == 0x9A && third == 0x80);
}

// Whether the byte at a place of a text is part of white space.
__device__ __forceinline__ bool is_space(const u8* text, i64 at, i64 size) {
    u8 byte = text[at];
    if (byte < 0x80) return (byte >= 9 && byte <= 13) || (byte >= 28 && byte <= 32);
    u8 before = at >= 1 ? text[at - 1] : 0, earlier = at >= 2 ? text[at - 2] : 0;
    u8 next = at + 1 < size ? text[at + 1] : 0, later = at + 2 < size ? text[at + 2] : 0;
    if (byte == 0xC2) return next == 0x85 || next == 0xA0;
    if (before == 0xC2) return byte == 0x85 || byte == 0xA0;
    return is_wide_space(byte, next, later) || is_wide_space(before, byte, next) || is_wide_space(earlier, before, byte);
}

// One block for each text: mark the bytes that begin a word.
extern "C" __global__ void word_starts(const u8* data, const i64* offsets, u8* starts) {
    i64 begin = offsets[blockIdx.x], size = offsets[blockIdx.x + 1] - begin;
    const u8* text = data + begin;
    for (i64 at = threadIdx.x; at < size; at += blockDim.x)
        starts[begin - offsets[0] + at] = !is_space(text, at, size) && (at == 0 || is_space(text, at - 1, size));
}

__device__ __forceinline__ u64 load(const u8* text, i64 size) {
    u64 word = 0;
    for (int i = 0; i < 8 && i < size; i++) word |= (u64)text[i] << (8 * i);
    return word;
}

// One thread for each word.
extern "C" __global__ void word_hashes(
    const u8* data, const i64* offsets, i64 row_count, const i64* places, i64 count, u64* hashes
) {
    i64 number = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (number >= count) return;
    i64 place = places[number] + offsets[0];
    i64 low = 0, high = row_count;  // the text that the word is in
    while (high - low > 1) {
        i64 middle = (low + high) / 2;
        if (offsets[middle] <= place) low = middle;
        else high = middle;
    }
    i64 begin = offsets[low], end = offsets[low + 1], stop = place;
    while (stop < end && !is_space(data + begin, stop - begin, end - begin)) stop++;
    const u8* word = data + place;
    i64 size = stop - place;
    u64 state = K2, first, last = 0;
    if (size <= 8) {
        first = load(word, size);
    } else {
        for (i64 at = 0; at + 16 < size; at += 16)
            state = mix(state ^ load(word + at, 8), K0) + mix(load(word + at + 8, 8) ^ K3, state);
        first = load(word + (size <= 16 ? 0 : size - 16), 8);
        last = load(word + size - 8, 8);
    }
    hashes[number] = mix(first ^ state, (last ^ K1) + (u64)size * K3);
}
