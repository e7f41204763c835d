// SPDX-License-Identifier: Apache-2.0
/// \file  FP8 quantization on a CUDA device, as a plugin that is loaded when asked for. Arithmetic and results: quantize/block.h.
/// Every operation names its rounding (`_rn`) and nvcc is told to contract nothing and to flush nothing, so that the
/// bytes are those of the CPU. Not yet seen to run on a device: marked as unverified in docs/performance.md.
///
/// A call takes a stream of its own, copies its matrix there and the result back. Three kernels: the peak of every group by
/// atomic maxima over its slices, a scale for every peak, and the bytes.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>

#include "quantize/cuda/plugin_abi.h"

namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kSlice = 16384;  ///< elements of a group that one block of threads looks at
constexpr std::uint32_t kInfinity = 0x7F800000U;

struct Shape {
  std::int64_t rows, cols, block_rows, block_cols, across;  ///< across: groups side by side
};

struct NonFinite {
  unsigned long long count;  // NOLINT(google-runtime-int): what atomicAdd and atomicMin take
  unsigned long long first;
};

__device__ float Value(const void* w, std::int32_t type, std::int64_t at) {
  if (type == kCrossdockFp8Bf16) return __uint_as_float(static_cast<std::uint32_t>(static_cast<const std::uint16_t*>(w)[at]) << 16);
  if (type == kCrossdockFp8F16) return __half2float(static_cast<const __half*>(w)[at]);
  return static_cast<const float*>(w)[at];
}

__global__ void Peaks(const void* w, std::int32_t type, Shape shape, std::int64_t slices, std::uint32_t* peaks, NonFinite* found) {
  const std::int64_t group = blockIdx.x / slices;
  const std::int64_t slice = blockIdx.x % slices;
  const std::int64_t r0 = group / shape.across * shape.block_rows;
  const std::int64_t c0 = group % shape.across * shape.block_cols;
  const std::int64_t rows = min(shape.block_rows, shape.rows - r0);
  const std::int64_t cols = min(shape.block_cols, shape.cols - c0);
  const std::int64_t end = min((slice + 1) * kSlice, rows * cols);
  std::uint32_t peak = 0;
  for (std::int64_t i = slice * kSlice + threadIdx.x; i < end; i += kThreads) {
    const std::int64_t at = (r0 + i / cols) * shape.cols + c0 + i % cols;
    const std::uint32_t magnitude = __float_as_uint(Value(w, type, at)) & 0x7FFFFFFFU;
    peak = max(peak, magnitude);
    if (magnitude >= kInfinity) {
      atomicAdd(&found->count, 1ULL);
      atomicMin(&found->first, static_cast<unsigned long long>(at));
    }
  }
  peak = __reduce_max_sync(0xFFFFFFFFU, peak);
  if (threadIdx.x % 32 == 0) atomicMax(&peaks[group], peak);
}

__global__ void Scales(const std::uint32_t* peaks, std::int64_t groups, bool ue8m0, float* s) {
  const std::int64_t group = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (group >= groups) return;
  const std::uint32_t peak = peaks[group];
  if (peak > kInfinity) {
    s[group] = __uint_as_float(0x7FC00000U);
    return;
  }
  const float scale = __fdiv_rn(fmaxf(__uint_as_float(peak), 1e-12F), 448.0F);
  const std::uint32_t bits = __float_as_uint(scale);
  const std::uint32_t exponent = (bits >> 23) + ((bits & 0x7FFFFFU) != 0 ? 1U : 0U);
  s[group] = ue8m0 && peak != kInfinity ? __uint_as_float(min(max(exponent, 1U), 254U) << 23) : scale;
}

/// As simd/scalar.cc does it.
__device__ std::uint8_t EncodeE4M3(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > kInfinity) return 0x7F;
  const std::uint32_t clamped = min(magnitude, 0x43E00000U);
  const std::uint32_t exponent = max(clamped & 0x7F800000U, 121U << 23);
  const std::uint32_t c = exponent + (20U << 23) + (exponent >> 20) - 121U * 8U;
  const std::uint32_t sum = __float_as_uint(__fadd_rn(__uint_as_float(clamped), __uint_as_float(c)));
  return static_cast<std::uint8_t>((sum & 0x7FU) | ((bits >> 24) & 0x80U));
}

__device__ float Narrow(float value, std::int32_t type) {
  if (type == kCrossdockFp8F16) return __half2float(__float2half_rn(value));
  if (type != kCrossdockFp8Bf16 || value != value) return value;
  const std::uint32_t bits = __float_as_uint(value);
  return __uint_as_float((bits + 0x7FFFU + ((bits >> 16) & 1U)) & 0xFFFF0000U);
}

__global__ void Bytes(const void* w, std::int32_t type, Shape shape, bool relax, const float* s, std::uint8_t* q) {
  const std::int64_t count = shape.rows * shape.cols;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; at < count; at += step) {
    const std::int64_t group = at / shape.cols / shape.block_rows * shape.across + at % shape.cols / shape.block_cols;
    float quotient = __fdiv_rn(Value(w, type, at), s[group]);
    if (relax) quotient = Narrow(quotient, type);
    q[at] = EncodeE4M3(quotient);
  }
}

/// Memory and stream of one call; the first failure is kept, and what comes after it is left out.
class Call {
 public:
  Call() { Try(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() {
    for (int i = 0; i < used_; ++i) cudaFreeAsync(held_[i], stream_);
    if (stream_ != nullptr) {
      cudaStreamSynchronize(stream_);
      cudaStreamDestroy(stream_);
    }
  }
  void Try(cudaError_t error) {
    if (error_ == cudaSuccess) error_ = error;
  }
  template <typename T>
  T* Take(std::int64_t count) {
    void* memory = nullptr;
    if (error_ == cudaSuccess) Try(cudaMallocAsync(&memory, static_cast<std::size_t>(count) * sizeof(T), stream_));
    if (memory != nullptr) held_[used_++] = memory;
    return static_cast<T*>(memory);
  }
  void Copy(void* to, const void* from, std::int64_t bytes) {
    if (error_ == cudaSuccess) Try(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream_));
  }
  void Clear(void* memory, std::int64_t bytes) {
    if (error_ == cudaSuccess) Try(cudaMemsetAsync(memory, 0, static_cast<std::size_t>(bytes), stream_));
  }
  template <typename Kernel, typename... Arguments>
  void Launch(Kernel kernel, std::int64_t blocks, Arguments... arguments) {
    if (error_ != cudaSuccess) return;
    kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream_>>>(arguments...);
    Try(cudaGetLastError());
  }
  void Wait() {
    if (error_ == cudaSuccess) Try(cudaStreamSynchronize(stream_));
  }
  [[nodiscard]] cudaError_t error() const { return error_; }

 private:
  cudaStream_t stream_ = nullptr;
  cudaError_t error_ = cudaSuccess;
  void* held_[5] = {};
  int used_ = 0;
};

std::int64_t Up(std::int64_t value, std::int64_t by) { return value / by + (value % by != 0 ? 1 : 0); }

cudaError_t Run(CrossdockFp8Request& request) {
  const std::int64_t count = request.rows * request.cols;
  request.nonfinite_count = 0;
  request.nonfinite_first = 0;
  request.peak = 0;
  if (count == 0) return cudaSuccess;
  const bool blocks = request.operation == kCrossdockFp8Blocks;
  const std::int64_t block_rows = blocks ? std::min(request.block_rows, request.rows) : request.rows;
  const std::int64_t block_cols = blocks ? std::min(request.block_cols, request.cols) : request.cols;
  const Shape shape{request.rows, request.cols, block_rows, block_cols, Up(request.cols, block_cols)};
  const std::int64_t groups = Up(request.rows, block_rows) * shape.across;
  const std::int64_t slices = Up(block_rows * block_cols, kSlice);
  const std::int64_t bytes = count * (request.type == kCrossdockFp8F32 ? 4 : 2);
  if (groups > 0x7FFFFFFF / slices) return cudaErrorInvalidConfiguration;

  Call call;
  auto* w = call.Take<std::uint8_t>(bytes);
  auto* s = call.Take<float>(groups);
  call.Copy(w, request.w, bytes);
  NonFinite found{0, ~0ULL};
  if (request.operation == kCrossdockFp8WithScale) {
    call.Copy(s, &request.scale, sizeof(float));
  } else {
    auto* peaks = call.Take<std::uint32_t>(groups);
    auto* counted = call.Take<NonFinite>(1);
    call.Clear(peaks, groups * static_cast<std::int64_t>(sizeof(std::uint32_t)));
    call.Copy(counted, &found, sizeof found);
    call.Launch(Peaks, groups * slices, static_cast<const void*>(w), request.type, shape, slices, peaks, counted);
    call.Copy(&found, counted, sizeof found);
    if (request.operation == kCrossdockFp8Peak) call.Copy(&request.peak, peaks, sizeof request.peak);
    if (blocks) call.Launch(Scales, Up(groups, kThreads), static_cast<const std::uint32_t*>(peaks), groups, request.ue8m0 != 0, s);
  }
  if (request.operation != kCrossdockFp8Peak) {
    auto* q = call.Take<std::uint8_t>(count);
    call.Launch(Bytes, std::min<std::int64_t>(Up(count, kThreads), 1 << 20), static_cast<const void*>(w), request.type, shape,
                request.relax != 0, static_cast<const float*>(s), q);
    call.Copy(request.q, q, count);
    if (blocks) call.Copy(request.s, s, groups * static_cast<std::int64_t>(sizeof(float)));
  }
  call.Wait();
  if (call.error() == cudaSuccess && found.count != 0) {
    request.nonfinite_count = static_cast<std::int64_t>(found.count);
    request.nonfinite_first = static_cast<std::int64_t>(found.first);
  }
  return call.error();
}

}  // namespace

extern "C" {

std::int32_t crossdock_fp8_version() { return kCrossdockFp8PluginVersion; }

std::int32_t crossdock_fp8_probe(char* error, std::int64_t size) {
  int devices = 0;
  const cudaError_t result = cudaGetDeviceCount(&devices);
  if (result == cudaSuccess && devices > 0) return 0;
  std::snprintf(error, static_cast<std::size_t>(size), "%s", result == cudaSuccess ? "no CUDA device" : cudaGetErrorString(result));
  return 1;
}

std::int32_t crossdock_fp8_run(CrossdockFp8Request* request) {
  const cudaError_t result = Run(*request);
  if (result == cudaSuccess) return 0;
  std::snprintf(request->error, sizeof request->error, "%s", cudaGetErrorString(result));
  return 1;
}

}  // extern "C"
