// The limit that the Numba kernels are measured against: belief propagation in the log domain on a
// pairwise graph, with the number of labels known to the compiler and everything inlined.
//
//   g++ -O3 -march=native -ffast-math -DLABELS=5 -shared -fPIC limit.cpp -o limit5.so
//
// Two versions. `sweep_blocked` runs the same algorithm as fieldfit (beliefs kept, messages formed
// from belief minus message, blocks so that exp and log vectorise through libmvec).
// `sweep_plain` is what one writes first: one message at a time, incoming messages summed anew.
// Messages of edge e: entries (2e) K .. to its first end, (2e+1) K .. to its second end.
#include <algorithm>
#include <cmath>
#include <cstdint>

constexpr int K = LABELS;
constexpr int BLOCK = 32;

extern "C" double sweep_blocked(
    int64_t n_levels, const int32_t* pair_offsets, const int32_t* target, const int32_t* source,
    const int32_t* signed_edge, const int32_t* variable_offsets, const int32_t* variables,
    const int32_t* slot_offsets, const int32_t* slots, const double* unary, const double* exp_table,
    double* message, double* log_belief) {
    double worst = 0.0;
    alignas(64) double inner[BLOCK * K], outer[BLOCK * K];
    for (int64_t level = 0; level < n_levels; ++level) {
        for (int32_t block = pair_offsets[level]; block < pair_offsets[level + 1]; block += BLOCK) {
            const int count = std::min<int>(BLOCK, pair_offsets[level + 1] - block);
            for (int k = 0; k < count; ++k) {
                const bool forward = signed_edge[block + k] >= 0;
                const double* incoming = message + target[block + k] + (forward ? -K : K);
                const double* belief = log_belief + source[block + k];
                double* row = inner + k * K;
                double top = belief[0] - incoming[0];
                for (int y = 0; y < K; ++y) {
                    row[y] = belief[y] - incoming[y];
                    top = std::max(top, row[y]);
                }
                for (int y = 0; y < K; ++y) row[y] -= top;
            }
            for (int z = 0; z < count * K; ++z) inner[z] = std::exp(inner[z]);
            for (int k = 0; k < count; ++k) {
                const int32_t edge = signed_edge[block + k];
                const double* in = inner + k * K;
                double* out = outer + k * K;
                if (edge >= 0) {
                    const double* table = exp_table + int64_t(edge) * K * K;
                    for (int j = 0; j < K; ++j) out[j] = 0.0;
                    for (int i = 0; i < K; ++i)
                        for (int j = 0; j < K; ++j) out[j] += in[i] * table[i * K + j];
                } else {
                    const double* table = exp_table + int64_t(~edge) * K * K;
                    for (int i = 0; i < K; ++i) {
                        double total = 0.0;
                        for (int j = 0; j < K; ++j) total += table[i * K + j] * in[j];
                        out[i] = total;
                    }
                }
            }
            for (int z = 0; z < count * K; ++z) outer[z] = std::log(outer[z]);
            for (int k = 0; k < count; ++k) {
                double* row = outer + k * K;
                double* to = message + target[block + k];
                double top = row[0];
                for (int y = 1; y < K; ++y) top = std::max(top, row[y]);
                for (int y = 0; y < K; ++y) {
                    const double value = row[y] - top;
                    worst = std::max(worst, std::abs(value - to[y]));
                    to[y] = value;
                }
            }
        }
        for (int32_t p = variable_offsets[level]; p < variable_offsets[level + 1]; ++p) {
            const int32_t i = variables[p];
            double total[K];
            for (int y = 0; y < K; ++y) total[y] = unary[int64_t(i) * K + y];
            for (int32_t q = slot_offsets[i]; q < slot_offsets[i + 1]; ++q)
                for (int y = 0; y < K; ++y) total[y] += message[int64_t(slots[q]) * K + y];
            double top = total[0];
            for (int y = 1; y < K; ++y) top = std::max(top, total[y]);
            for (int y = 0; y < K; ++y) log_belief[int64_t(i) * K + y] = total[y] - top;
        }
    }
    return worst;
}

// Flooding: reads `message`, writes `following`; the caller swaps them.
extern "C" double sweep_plain(
    int64_t n_messages, const int32_t* owner_of_source, const int32_t* slot_offsets,
    const int32_t* slots, const double* unary, const double* exp_table, const double* message,
    double* following) {
    double worst = 0.0;
    for (int64_t slot = 0; slot < n_messages; ++slot) {
        const int32_t source = owner_of_source[slot];
        const int64_t reverse = slot ^ 1;
        double in[K], out[K];
        for (int y = 0; y < K; ++y) in[y] = unary[int64_t(source) * K + y];
        for (int32_t q = slot_offsets[source]; q < slot_offsets[source + 1]; ++q)
            if (slots[q] != reverse)
                for (int y = 0; y < K; ++y) in[y] += message[int64_t(slots[q]) * K + y];
        double top = in[0];
        for (int y = 1; y < K; ++y) top = std::max(top, in[y]);
        for (int y = 0; y < K; ++y) in[y] = std::exp(in[y] - top);
        const double* table = exp_table + (slot >> 1) * K * K;
        if (slot & 1) {
            for (int j = 0; j < K; ++j) out[j] = 0.0;
            for (int i = 0; i < K; ++i)
                for (int j = 0; j < K; ++j) out[j] += in[i] * table[i * K + j];
        } else {
            for (int i = 0; i < K; ++i) {
                double total = 0.0;
                for (int j = 0; j < K; ++j) total += table[i * K + j] * in[j];
                out[i] = total;
            }
        }
        top = out[0];
        for (int y = 1; y < K; ++y) top = std::max(top, out[y]);
        for (int y = 0; y < K; ++y) {
            const double value = std::log(out[y] / top);
            worst = std::max(worst, std::abs(value - message[slot * K + y]));
            following[slot * K + y] = value;
        }
    }
    return worst;
}
