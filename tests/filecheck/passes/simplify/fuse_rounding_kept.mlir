// RUN: xdsl-opt %s -p pebble-fuse-rounding --split-input-file | filecheck %s

// A weight has more bits than bfloat16: kernels would round it, too.
// CHECK-LABEL: @more_bits
func.func @more_bits(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  %w = pebble.constant dense<1.001> : tensor<1x1xf32>
  // CHECK: [[R:%.*]] = pebble.activate <bfloat16> %x
  %r = pebble.activate <bfloat16> %x : (tensor<?x1xf32>) -> tensor<?x1xf32>
  // CHECK-NEXT: pebble.linear [[R]], %w :
  %y = pebble.linear %r, %w : (tensor<?x1xf32>, tensor<1x1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}

// -----

// Another activation, and a weight that is computed.
// CHECK-LABEL: @others
func.func @others(%x: tensor<?x1xf32>, %w: tensor<1x1xf32>) -> tensor<?x1xf32> {
  %v = pebble.constant dense<1.0> : tensor<1x1xf32>
  // CHECK: [[R:%.*]] = pebble.activate <relu> %x
  %r = pebble.activate <relu> %x : (tensor<?x1xf32>) -> tensor<?x1xf32>
  // CHECK: [[H:%.*]] = pebble.linear [[R]], %v :
  %h = pebble.linear %r, %v : (tensor<?x1xf32>, tensor<1x1xf32>) -> tensor<?x1xf32>
  // CHECK: [[S:%.*]] = pebble.activate <bfloat16> [[H]]
  %s = pebble.activate <bfloat16> %h : (tensor<?x1xf32>) -> tensor<?x1xf32>
  // CHECK: pebble.linear [[S]], %w :
  %y = pebble.linear %s, %w : (tensor<?x1xf32>, tensor<1x1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}
