// RUN: xdsl-opt %s -p pebble-discover-structure --split-input-file | filecheck %s

// Columns 0 and 2 read inputs 0 and 3; column 1 reads others.
// CHECK-LABEL: @main
func.func @main(%x: tensor<?x4xf32>) -> tensor<?x3xf32> {
  // CHECK: panels <[2 by 1], 0.67 shared, dense<[0, 2]> : tensor<2xi64>> : tensor<4x3xf32, #pebble.sparsity<nonzeros = 6>>
  %w = pebble.sparse_constant pointers dense<[0, 2, 4, 6]> : tensor<4xi64> rows dense<[0, 3, 1, 2, 0, 3]> : tensor<6xi64> values dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]> : tensor<6xf32> : tensor<4x3xf32, #pebble.sparsity<nonzeros = 6>>
  %y = pebble.linear %x, %w : (tensor<?x4xf32>, tensor<4x3xf32, #pebble.sparsity<nonzeros = 6>>) -> tensor<?x3xf32>
  func.return %y : tensor<?x3xf32>
}

// -----

// Output n reads inputs n and n - 2, so even and odd neurons have nothing to do with each other.
// CHECK-LABEL: @strides
func.func @strides(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // CHECK: facts [#pebble.fact<circulant, period = 8, start = 0, stride = 2, radix = 2>, #pebble.fact<components, count = 2, percent = 50>, #pebble.fact<band, before = 6, after = 1>] : tensor<8x8xf32
  %w = pebble.sparse_constant pointers dense<[0, 2, 4, 6, 8, 10, 12, 14, 16]> : tensor<9xi64> rows dense<[0, 6, 1, 7, 0, 2, 1, 3, 2, 4, 3, 5, 4, 6, 5, 7]> : tensor<16xi64> values dense<1.0> : tensor<16xf32> : tensor<8x8xf32, #pebble.sparsity<nonzeros = 16>>
  %y = pebble.linear %x, %w : (tensor<?x8xf32>, tensor<8x8xf32, #pebble.sparsity<nonzeros = 16>>) -> tensor<?x8xf32>
  func.return %y : tensor<?x8xf32>
}

// -----

// Of a convolution: channels 0 and 2 read the same taps.
// CHECK-LABEL: @convolution
func.func @convolution(%x: tensor<?x2x4x4xf32>) -> tensor<?x3x4x3xf32> {
  // CHECK: panels <[2 by 1], 0.67 shared, dense<[0, 2]> : tensor<2xi64>> : tensor<4x3xf32, #pebble.sparsity<nonzeros = 6>>
  %w = pebble.sparse_constant pointers dense<[0, 2, 4, 6]> : tensor<4xi64> rows dense<[0, 3, 1, 2, 0, 3]> : tensor<6xi64> values dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]> : tensor<6xf32> : tensor<4x3xf32, #pebble.sparsity<nonzeros = 6>>
  %y = pebble.conv2d %x, %w window <[1, 2] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<4x3xf32, #pebble.sparsity<nonzeros = 6>>) -> tensor<?x3x4x3xf32>
  func.return %y : tensor<?x3x4x3xf32>
}
