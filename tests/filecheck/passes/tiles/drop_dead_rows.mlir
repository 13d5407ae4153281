// RUN: xdsl-opt %s -p pebble-drop-dead-rows --split-input-file | filecheck %s

// The clamp makes zeros of the negative biases: rows of zeros stay so from the first layer on.
// CHECK-LABEL: @clamped
func.func @clamped(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 0.0], [0.0, 1.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<-0.3> : tensor<2xf32>
  // CHECK: schedule <widths = [16]> dead_rows <dropped after [0], tiles of 48>
  %y = pebble.tile %x rows_of [0] schedule <widths = [16]> : (tensor<?x2xf32>) -> tensor<?x2xf32> {
  ^bb0(%t: tensor<?x2xf32>):
    %h = pebble.linear %t, %w bias %b activation <clip(0.0, 32.0)> : (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
    %z = pebble.linear %h, %w bias %b activation <relu> : (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
    pebble.yield %z : tensor<?x2xf32>
  }
  func.return %y : tensor<?x2xf32>
}

// -----

// The last layer makes its bias of zeros.
// CHECK-LABEL: @biased
func.func @biased(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 0.0], [0.0, 1.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[-0.3, 0.5]> : tensor<2xf32>
  // CHECK-NOT: dead_rows
  %y = pebble.tile %x rows_of [0] schedule <widths = [16]> : (tensor<?x2xf32>) -> tensor<?x2xf32> {
  ^bb0(%t: tensor<?x2xf32>):
    %h = pebble.linear %t, %w activation <relu> : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
    %z = pebble.linear %h, %w bias %b activation <relu> : (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
    pebble.yield %z : tensor<?x2xf32>
  }
  func.return %y : tensor<?x2xf32>
}

// -----

// Layers that run depth first have no place between them.
// CHECK-LABEL: @depth_first
func.func @depth_first(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 1]> : tensor<2xi64> values dense<[1.0, 2.0]> : tensor<2xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>
  // CHECK-NOT: dead_rows
  %y = pebble.tile %x rows_of [0] schedule <widths = [64]> depth_first <from 64, [<layers 0 to 1, "why", runs dense<[0, 2]> : tensor<2xi64>, order dense<[2, 4, 3, 5]> : tensor<4xi64>, slots dense<[0, 3, 1, 4, 2, 5]> : tensor<6xi64>>]> : (tensor<?x2xf32>) -> tensor<?x2xf32> {
  ^bb0(%t: tensor<?x2xf32>):
    %h = pebble.linear %t, %w activation <relu> : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    %z = pebble.linear %h, %w activation <relu> : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    pebble.yield %z : tensor<?x2xf32>
  }
  func.return %y : tensor<?x2xf32>
}
