// Operators without libtorch's bookkeeping for gradients, and without its autocast.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <optional>

namespace lapse {

/// While one of these lives, this thread's operators skip autograd's part of libtorch's dispatcher, if no gradients are
/// asked for (at::GradMode): token by token that would cost as much as the arithmetic.
class WithoutAutograd {
 public:
  WithoutAutograd() {
    if (!at::GradMode::is_enabled()) below_.emplace();
  }

 private:
  std::optional<at::AutoDispatchBelowADInplaceOrView> below_;
};

/// While one of these lives, this thread's operators skip autograd's part of the dispatcher, and autocast's. Every
/// kernel of ours makes one: within torch.autocast its own products would be of half precision otherwise, whatever its
/// inputs are. Threads that a kernel shares its work with need one each.
class InsideKernel {
 public:
  InsideKernel() : without_(c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard without_;
};

}  // namespace lapse
