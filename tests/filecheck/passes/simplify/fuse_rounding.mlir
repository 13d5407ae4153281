// RUN: xdsl-opt %s -p pebble-fuse-rounding --split-input-file | filecheck %s

// The weights are numbers of bfloat16; another reader still sees rounded values.
// CHECK-LABEL: @rounded
func.func @rounded(%x: tensor<?x2xf32>) -> (tensor<?x1xf32>, tensor<?x2xf32>) {
  %w = pebble.sparse_constant pointers dense<[0, 1]> : tensor<2xi64> rows dense<[1]> : tensor<1xi64> values dense<[1.5]> : tensor<1xf32> : tensor<2x1xf32, #pebble.sparsity<nonzeros = 1>>
  // CHECK: [[R:%.*]] = pebble.activate <bfloat16> %x
  %r = pebble.activate <bfloat16> %x : (tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: %y = pebble.linear %x, %w activation <relu> precision "bf16" :
  %y = pebble.linear %r, %w activation <relu> : (tensor<?x2xf32>, tensor<2x1xf32, #pebble.sparsity<nonzeros = 1>>) -> tensor<?x1xf32>
  // CHECK-NEXT: func.return %y, [[R]]
  func.return %y, %r : tensor<?x1xf32>, tensor<?x2xf32>
}

// -----

// Two layers read what is rounded; without a reader nothing is.
// CHECK-LABEL: @shared
func.func @shared(%x: tensor<?x2xf32>) -> (tensor<?x2xf32>, tensor<?x2xf32>) {
  %w = pebble.constant dense<[[0.0, 1.0], [2.0, -0.5]]> : tensor<2x2xf32>
  // CHECK-NOT: pebble.activate
  %r = pebble.activate <bfloat16> %x : (tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK: pebble.linear %x, %w precision "bf16"
  %y = pebble.linear %r, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: pebble.linear %x, %w precision "bf16"
  %z = pebble.linear %r, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %y, %z : tensor<?x2xf32>, tensor<?x2xf32>
}

// -----

// Convolutions round as linear layers do.
// CHECK-LABEL: @convolution
func.func @convolution(%x: tensor<?x2x4x4xf32>) -> tensor<?x1x4x4xf32> {
  %w = pebble.constant dense<[[0.5], [2.0]]> : tensor<2x1xf32>
  // CHECK-NOT: pebble.activate
  %r = pebble.activate <bfloat16> %x : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  // CHECK: pebble.conv2d %x, %w window {{.*}} precision "bf16" :
  %y = pebble.conv2d %r, %w window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<2x1xf32>) -> tensor<?x1x4x4xf32>
  func.return %y : tensor<?x1x4x4xf32>
}
