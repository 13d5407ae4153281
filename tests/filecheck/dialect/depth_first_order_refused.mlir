// RUN: xdsl-opt %s --split-input-file --verify-diagnostics | filecheck %s

// CHECK: neurons 0 and 2 are alive in slot 0 at the same time
func.func @clash(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 1]> : tensor<2xi64> values dense<[1.0, 2.0]> : tensor<2xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>
  %y = pebble.tile %x rows_of [0] schedule <widths = [64]> depth_first <from 64, [<layers 0 to 1, "why", runs dense<[0, 1, 2, 3]> : tensor<4xi64>, order dense<[2, 4, 3, 5]> : tensor<4xi64>, slots dense<[0, 1, 0, 1, 2, 3]> : tensor<6xi64>>]> : (tensor<?x2xf32>) -> tensor<?x2xf32> {
  ^bb0(%t: tensor<?x2xf32>):
    %h = pebble.linear %t, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    %z = pebble.linear %h, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    pebble.yield %z : tensor<?x2xf32>
  }
  func.return %y : tensor<?x2xf32>
}

// -----

// CHECK: output 5 is not in the order
func.func @missing(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 1]> : tensor<2xi64> values dense<[1.0, 2.0]> : tensor<2xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>
  %y = pebble.tile %x rows_of [0] schedule <widths = [64]> depth_first <from 64, [<layers 0 to 1, "why", runs dense<[0]> : tensor<1xi64>, order dense<[2, 4, 3]> : tensor<3xi64>, slots dense<[0, 1, 2, 3, 4, -1]> : tensor<6xi64>>]> : (tensor<?x2xf32>) -> tensor<?x2xf32> {
  ^bb0(%t: tensor<?x2xf32>):
    %h = pebble.linear %t, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    %z = pebble.linear %h, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    pebble.yield %z : tensor<?x2xf32>
  }
  func.return %y : tensor<?x2xf32>
}

// -----

// CHECK: neuron 1 has no slot
func.func @homeless(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 1]> : tensor<2xi64> values dense<[1.0, 2.0]> : tensor<2xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>
  %y = pebble.tile %x rows_of [0] schedule <widths = [64]> depth_first <from 64, [<layers 0 to 1, "why", runs dense<[0]> : tensor<1xi64>, order dense<[2, 4, 3, 5]> : tensor<4xi64>, slots dense<[0, -1, 2, 3, 4, 5]> : tensor<6xi64>>]> : (tensor<?x2xf32>) -> tensor<?x2xf32> {
  ^bb0(%t: tensor<?x2xf32>):
    %h = pebble.linear %t, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    %z = pebble.linear %h, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    pebble.yield %z : tensor<?x2xf32>
  }
  func.return %y : tensor<?x2xf32>
}

// -----

// CHECK: expected a slot for each of 6 neurons, got 5
func.func @slots(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 1]> : tensor<2xi64> values dense<[1.0, 2.0]> : tensor<2xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>
  %y = pebble.tile %x rows_of [0] schedule <widths = [64]> depth_first <from 64, [<layers 0 to 1, "why", runs dense<[0]> : tensor<1xi64>, order dense<[2, 4, 3, 5]> : tensor<4xi64>, slots dense<[0, 1, 2, 3, 4]> : tensor<5xi64>>]> : (tensor<?x2xf32>) -> tensor<?x2xf32> {
  ^bb0(%t: tensor<?x2xf32>):
    %h = pebble.linear %t, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    %z = pebble.linear %h, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    pebble.yield %z : tensor<?x2xf32>
  }
  func.return %y : tensor<?x2xf32>
}

// -----

// CHECK: the order names a neuron twice, an input, or a neuron that does not exist
func.func @twice(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 1]> : tensor<2xi64> values dense<[1.0, 2.0]> : tensor<2xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>
  %y = pebble.tile %x rows_of [0] schedule <widths = [64]> depth_first <from 64, [<layers 0 to 1, "why", runs dense<[0]> : tensor<1xi64>, order dense<[2, 4, 3, 3]> : tensor<4xi64>, slots dense<[0, 1, 2, 3, 4, 5]> : tensor<6xi64>>]> : (tensor<?x2xf32>) -> tensor<?x2xf32> {
  ^bb0(%t: tensor<?x2xf32>):
    %h = pebble.linear %t, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    %z = pebble.linear %h, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    pebble.yield %z : tensor<?x2xf32>
  }
  func.return %y : tensor<?x2xf32>
}

// -----

// CHECK: runs that do not start at 0 and ascend below 4, the neurons in the order
func.func @runs(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 1]> : tensor<2xi64> values dense<[1.0, 2.0]> : tensor<2xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>
  %y = pebble.tile %x rows_of [0] schedule <widths = [64]> depth_first <from 64, [<layers 0 to 1, "why", runs dense<[0, 4]> : tensor<2xi64>, order dense<[2, 4, 3, 5]> : tensor<4xi64>, slots dense<[0, 1, 2, 3, 4, 5]> : tensor<6xi64>>]> : (tensor<?x2xf32>) -> tensor<?x2xf32> {
  ^bb0(%t: tensor<?x2xf32>):
    %h = pebble.linear %t, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    %z = pebble.linear %h, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    pebble.yield %z : tensor<?x2xf32>
  }
  func.return %y : tensor<?x2xf32>
}
