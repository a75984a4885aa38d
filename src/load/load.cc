// load(): open, plan, run; through the packed cache when there is one.
#include "swordfish/load.h"

#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/try.h"
#include "io/staging_plan.h"
#include "load/cache_guard.h"
#include "load/checkpoint_job.h"
#include "load/load_hooks.h"
#include "load/packed_cache.h"
#include "load/packed_job.h"
#include "load/uploader.h"

namespace swordfish {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Status check(const LoadOptions& options) {
  if (options.ranks < 1 || options.rank < 0 || options.rank >= options.ranks)
    return invalid_argument("rank {} of {}: expected 0 <= rank < ranks", options.rank, options.ranks);
  if (options.threads < 0 || options.threads > 4096) return invalid_argument("{} threads; expected 0 to 4096", options.threads);
  if (options.depth < 1 || options.depth > 4096)
    return invalid_argument("depth {}; expected 1 to 4096 reads in flight", options.depth);
  if (options.ring_bytes > std::uint64_t{1} << 40) return invalid_argument("a ring of {} bytes", options.ring_bytes);
  return {};
}

void count(LoadedModel& model) {
  LoadReport& report = model.report;
  report.layers = static_cast<std::int64_t>(model.layers.size());
  report.tensors = static_cast<std::int64_t>(model.tensors.size());
  report.packed_bytes = 0;
  for (const LoadedLayer& layer : model.layers) {
    for (const PackedWeight& weight : layer.weights) report.packed_bytes += weight.bytes();
    for (const DeviceWeight& weight : layer.device_weights) report.packed_bytes += DeviceWeight::bytes(weight.view());
    report.packed_bytes += layer.bias.size() * sizeof(float);
  }
  for (const LoadedTensor& tensor : model.tensors) report.packed_bytes += tensor.info.bytes;
}

// The GPU that is loaded to, if it is one, and the way there, which takes a quarter of the ring's memory.
class Destination {
 public:
  Destination(LoadOptions& options, const JobHooks& hooks) {
    if (options.raw || (options.device.kind != Device::Kind::cuda && hooks.device == nullptr)) return;
    const std::uint64_t chunks = options.ring_bytes / 4;
    options.ring_bytes -= chunks;
    const auto workers = static_cast<unsigned>(most_workers(options));
    uploader_ = std::make_unique<Uploader>(
        [this, device = options.device, workers, &hooks]() -> Result<LoadDevice*> {
          if (hooks.device != nullptr) return hooks.device;
          SF_ASSIGN(gpu_, make_load_gpu(device, 2 * workers));
          return gpu_.get();
        },
        workers, std::max(chunks / (2 * workers) / io::kPage * io::kPage, io::kPage));
  }

  Uploader* uploader() const { return uploader_.get(); }  // null: everything stays in host memory

 private:
  std::unique_ptr<LoadDevice> gpu_;
  std::unique_ptr<Uploader> uploader_;
};

Result<LoadedModel> load_packed_file(const std::string& path, const LoadOptions& options, const Destination& destination,
                                     const JobHooks& hooks, Clock::time_point start) {
  if (options.ranks > 1) return unsupported("{}: a packed file is loaded whole; ranks are cut from the checkpoint", path);
  if (!options.layers.empty() || options.fuse)
    return unsupported("{}: a packed file is loaded as it is; layers and fuse are of the checkpoint", path);
  LoadedModel model;
  SF_ASSIGN(const auto file, io::File::open(path));
  SF_ASSIGN(const auto job, PackedJob::open(path, "", nullptr));
  if (Uploader* const uploader = destination.uploader()) {
    SF_TRY(uploader->problem());
    uploader->expect(file->size());
    job->upload_to(*uploader);
  }
  model.report.open_seconds = seconds_since(start);
  SF_TRY(run_job(job->job(), options, model.report, hooks));
  if (!options.raw) SF_TRY(job->take(model));
  model.report.from_packed = true;
  return model;
}

Status make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0 || errno == EEXIST) return {};
  return io_error("{}: cannot make the folder: {}", path, errno_text(errno));
}

Result<LoadedModel> load_any(const std::string& path, LoadOptions options, const JobHooks& hooks, Clock::time_point start) {
  SF_TRY(check(options));
  const CacheGuard guard(path);
  const Destination destination(options, hooks);
  if (PackedFile::is_packed(path)) {
    SF_ASSIGN(LoadedModel model, load_packed_file(path, options, destination, hooks, start));
    count(model);
    return model;
  }
  SF_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(path, options.open));
  SF_ASSIGN(const auto job, CheckpointJob::open(checkpoint, options));
  Uploader* const uploader = destination.uploader();
  if (uploader != nullptr) {
    SF_TRY(uploader->problem());
    uploader->expect(job->plan().bytes - job->plan().strided_bytes);
    job->upload_to(*uploader);
  }
  LoadedModel model;
  std::optional<PackedCache> cache;
  if (!options.cache.empty() && !options.raw) {
    SF_TRY(make_folder(options.cache));
    SF_ASSIGN(cache, PackedCache::find(path, job->files(), options));
    if (cache->exists()) {
      model.report.open_seconds = seconds_since(start);
      Status status = cache->load(options, uploader, hooks, model);
      if (status.ok()) {
        count(model);
        return model;
      }
      if (status.code() != Code::malformed && status.code() != Code::io) return status;
      model = {};
      if (uploader != nullptr) SF_TRY(uploader->forget());
      model.report.notes.push_back(fmt::format("the packed cache is made anew: {}", status.message()));
    }
  }
  model.report.open_seconds = seconds_since(start);
  SF_TRY(run_job(job->job(), options, model.report, hooks));
  model.report.strided_bytes = job->plan().strided_bytes;
  model.report.pack_seconds = job->pack_seconds();
  if (job->plan().strided_tensors > 0) {
    model.report.notes.push_back(fmt::format(
        "{} tensors have runs shorter than {} KiB for this rank and are read from their first run to their last: {} bytes more",
        job->plan().strided_tensors, kShortestRun >> 10, job->plan().strided_bytes));
  }
  if (options.raw) return model;
  SF_TRY(job->take(model));
  const std::vector<Warning>& warnings = checkpoint.warnings();
  model.report.notes.insert(model.report.notes.begin(), warnings.begin(), warnings.end());
  count(model);
  if (cache) {
    const Clock::time_point writing = Clock::now();
    SF_TRY(cache->store(model, options));
    model.report.cache_seconds = seconds_since(writing);
    model.report.cache_written = true;
  }
  return model;
}

}  // namespace

Result<LoadedModel> load_hooked(const std::string& path, const LoadOptions& options, const JobHooks& hooks) {
  const Clock::time_point start = Clock::now();
  Result<LoadedModel> model = load_any(path, options, hooks, start);
  if (model.ok()) model->report.seconds = seconds_since(start) - model->report.cache_seconds;  // the ring's memory has gone, too
  return model;
}

Result<LoadedModel> load(const std::string& path, const LoadOptions& options) { return load_hooked(path, options, {}); }

}  // namespace swordfish
