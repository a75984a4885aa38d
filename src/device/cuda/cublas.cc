// cuBLAS as a peer of `bench`: y = x · Wᵀ on a dense 16-bit weight. The numbers below are those of cublas_api.h.
#include <library_types.h>

#include "base/library.h"
#include "base/try.h"
#include "device/cuda/runtime.h"
#include "device/measure.h"

namespace swordfish {
namespace {

using Handle = struct CublasContext*;
constexpr int kNoTranspose = 0, kTranspose = 1, kCompute32F = 68, kDefaultAlgorithm = -1;
constexpr std::size_t kWorkspace = std::size_t{32} << 20;  // what its documentation advises for Hopper

}  // namespace

struct Cublas::Impl {
  Impl(Library opened, Device where) : library(std::move(opened)), device(where) {}
  ~Impl() {
    if (!handle) return;
    const CurrentDevice current(device);
    destroy(handle);
  }
  Library library;
  Device device;
  DeviceBuffer workspace;
  Handle handle = nullptr;
  int (*destroy)(Handle) = nullptr;
  int (*set_stream)(Handle, void*) = nullptr;
  int (*set_workspace)(Handle, void*, std::size_t) = nullptr;
  int (*gemm)(Handle, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, void*, int,
              int, int, int) = nullptr;
};

Cublas::Cublas(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Cublas::Cublas(Cublas&&) noexcept = default;
Cublas& Cublas::operator=(Cublas&&) noexcept = default;
Cublas::~Cublas() = default;

Result<Cublas> Cublas::open(Device device) {
  SF_TRY(usable_gpu(device).status());
  SF_ASSIGN(Library library, Library::open({"libcublas.so.13", "libcublas.so.12"}));
  auto impl = std::make_unique<Impl>(std::move(library), device);
  const auto create = impl->library.function<int(Handle*)>("cublasCreate_v2");
  impl->destroy = impl->library.function<int(Handle)>("cublasDestroy_v2");
  impl->set_stream = impl->library.function<int(Handle, void*)>("cublasSetStream_v2");
  impl->set_workspace = impl->library.function<int(Handle, void*, std::size_t)>("cublasSetWorkspace_v2");
  impl->gemm = reinterpret_cast<decltype(impl->gemm)>(impl->library.function<void()>("cublasGemmEx"));
  if (!create || !impl->destroy || !impl->set_stream || !impl->set_workspace || !impl->gemm)
    return unavailable("libcublas lacks a function that the bench needs: use cuBLAS 12 or 13");
  const CurrentDevice current(device);
  SF_TRY(current.status());
  if (const int e = create(&impl->handle); e != 0) return unavailable("cublasCreate failed with status {}", e);
  SF_ASSIGN(impl->workspace, DeviceBuffer::allocate(device, kWorkspace));
  return Cublas(std::move(impl));
}

Status Cublas::multiply(DType type, const void* x, const void* w, void* y, std::int64_t m, std::int64_t n, std::int64_t k,
                        void* stream) {
  const CurrentDevice current(impl_->device);
  SF_TRY(current.status());
  const float one = 1, zero = 0;
  const int kind = type == DType::bf16 ? CUDA_R_16BF : CUDA_R_16F;
  const auto im = static_cast<int>(m), in = static_cast<int>(n), ik = static_cast<int>(k);
  int e = impl_->set_stream(impl_->handle, stream);  // takes the workspace away
  if (e == 0) e = impl_->set_workspace(impl_->handle, impl_->workspace.data(), kWorkspace);
  // Column-major: yᵀ[n,m] = (wᵀ)ᵀ · xᵀ.
  if (e == 0)
    e = impl_->gemm(impl_->handle, kTranspose, kNoTranspose, in, im, ik, &one, w, kind, ik, x, kind, ik, &zero, y, kind, in,
                    kCompute32F, kDefaultAlgorithm);
  return e == 0 ? Status() : unavailable("cublasGemmEx failed with status {}", e);
}

}  // namespace swordfish
