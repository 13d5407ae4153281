// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s
// RUN: xdsl-opt %s --print-op-generic | filecheck %s --check-prefix GENERIC

func.func @main(%x: tensor<?x4xf32>, %i: tensor<?x3x8x8xf32>, %p: tensor<4xf32>, %c: tensor<3xf32>) {
  %softmax = pebble.softmax %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %log = pebble.log_softmax %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %layer = pebble.layer_norm %x scale %p bias %p epsilon 1.0e-05 : (tensor<?x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  %unbiased = pebble.layer_norm %x scale %p epsilon 9.999999747378752e-06 : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  %rms = pebble.rms_norm %x scale %p epsilon 0.0 : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  %batch = pebble.batch_norm %i scale %c bias %c mean %c variance %c epsilon 1.0e-05 : (tensor<?x3x8x8xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<?x3x8x8xf32>
  %mean = pebble.reduce_mean %x : (tensor<?x4xf32>) -> tensor<?x1xf32>
  func.return
}

// CHECK:      %softmax = pebble.softmax %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
// CHECK-NEXT: %log = pebble.log_softmax %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
// CHECK-NEXT: %layer = pebble.layer_norm %x scale %p bias %p epsilon 1.000000e-05 : (tensor<?x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
// CHECK-NEXT: %unbiased = pebble.layer_norm %x scale %p epsilon 9.9999997473787516e-06 : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
// CHECK-NEXT: %rms = pebble.rms_norm %x scale %p epsilon 0.000000e+00 : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
// CHECK-NEXT: %batch = pebble.batch_norm %i scale %c bias %c mean %c variance %c epsilon 1.000000e-05 : (tensor<?x3x8x8xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<?x3x8x8xf32>
// CHECK-NEXT: %mean = pebble.reduce_mean %x : (tensor<?x4xf32>) -> tensor<?x1xf32>

// GENERIC: %layer = "pebble.layer_norm"(%x, %p, %p) <{epsilon = 1.000000e-05 : f64}> : (tensor<?x4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
