// RUN: xdsl-opt %s --split-input-file --verify-diagnostics | filecheck %s

// CHECK: layers 1 to 2 of 2
func.func @beyond(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 1]> : tensor<2xi64> values dense<[1.0, 2.0]> : tensor<2xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>
  %b = pebble.constant dense<[-0.3, 0.5]> : tensor<2xf32>
  %y = pebble.tile %x rows_of [0] schedule <widths = [64]> depth_first <from 64, [<layers 1 to 2, "why", runs dense<[0, 2]> : tensor<2xi64>, order dense<[2, 4, 3, 5]> : tensor<4xi64>, slots dense<[0, 3, 1, 4, 2, 5]> : tensor<6xi64>>]> : (tensor<?x2xf32>) -> tensor<?x2xf32> {
  ^bb0(%t: tensor<?x2xf32>):
    %h = pebble.linear %t, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    %z = pebble.linear %h, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    pebble.yield %z : tensor<?x2xf32>
  }
  func.return %y : tensor<?x2xf32>
}

// -----

// CHECK: neuron 4 is computed before its source 2
func.func @early(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 1]> : tensor<2xi64> values dense<[1.0, 2.0]> : tensor<2xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>
  %b = pebble.constant dense<[-0.3, 0.5]> : tensor<2xf32>
  %y = pebble.tile %x rows_of [0] schedule <widths = [64]> depth_first <from 64, [<layers 0 to 1, "why", runs dense<[0, 2]> : tensor<2xi64>, order dense<[4, 2, 3, 5]> : tensor<4xi64>, slots dense<[0, 3, 1, 4, 2, 5]> : tensor<6xi64>>]> : (tensor<?x2xf32>) -> tensor<?x2xf32> {
  ^bb0(%t: tensor<?x2xf32>):
    %h = pebble.linear %t, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    %z = pebble.linear %h, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    pebble.yield %z : tensor<?x2xf32>
  }
  func.return %y : tensor<?x2xf32>
}

// -----

// CHECK: expected rows dropped before layer 1, got after layer 1
func.func @last(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 1]> : tensor<2xi64> values dense<[1.0, 2.0]> : tensor<2xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>
  %b = pebble.constant dense<[-0.3, 0.5]> : tensor<2xf32>
  %y = pebble.tile %x rows_of [0] schedule <widths = [64]> dead_rows <dropped after [1], tiles of 48> : (tensor<?x2xf32>) -> tensor<?x2xf32> {
  ^bb0(%t: tensor<?x2xf32>):
    %h = pebble.linear %t, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    %z = pebble.linear %h, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    pebble.yield %z : tensor<?x2xf32>
  }
  func.return %y : tensor<?x2xf32>
}

// -----

// CHECK: rows dropped after layer 0, but layer 1 makes more than zeros of them
func.func @alive(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 1]> : tensor<2xi64> values dense<[1.0, 2.0]> : tensor<2xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>
  %b = pebble.constant dense<[-0.3, 0.5]> : tensor<2xf32>
  %y = pebble.tile %x rows_of [0] schedule <widths = [64]> dead_rows <dropped after [0], tiles of 48> : (tensor<?x2xf32>) -> tensor<?x2xf32> {
  ^bb0(%t: tensor<?x2xf32>):
    %h = pebble.linear %t, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    %z = pebble.linear %h, %w bias %b : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>, tensor<2xf32>) -> tensor<?x2xf32>
    pebble.yield %z : tensor<?x2xf32>
  }
  func.return %y : tensor<?x2xf32>
}

// -----

// CHECK: dead rows are dropped between layers, but these run depth first
func.func @both(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 1]> : tensor<2xi64> values dense<[1.0, 2.0]> : tensor<2xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>
  %b = pebble.constant dense<[-0.3, 0.5]> : tensor<2xf32>
  %y = pebble.tile %x rows_of [0] schedule <widths = [64]> depth_first <from 64, [<layers 0 to 1, "why", runs dense<[0, 2]> : tensor<2xi64>, order dense<[2, 4, 3, 5]> : tensor<4xi64>, slots dense<[0, 3, 1, 4, 2, 5]> : tensor<6xi64>>]> dead_rows <dropped after [0], tiles of 48> : (tensor<?x2xf32>) -> tensor<?x2xf32> {
  ^bb0(%t: tensor<?x2xf32>):
    %h = pebble.linear %t, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    %z = pebble.linear %h, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    pebble.yield %z : tensor<?x2xf32>
  }
  func.return %y : tensor<?x2xf32>
}

// -----

// CHECK: expected ascending numbers of layers after which rows are dropped, got [1, 0]
func.func @order(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 1]> : tensor<2xi64> values dense<[1.0, 2.0]> : tensor<2xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>
  %b = pebble.constant dense<[-0.3, 0.5]> : tensor<2xf32>
  %y = pebble.tile %x rows_of [0] schedule <widths = [64]> dead_rows <dropped after [1, 0], tiles of 48> : (tensor<?x2xf32>) -> tensor<?x2xf32> {
  ^bb0(%t: tensor<?x2xf32>):
    %h = pebble.linear %t, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    %z = pebble.linear %h, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    pebble.yield %z : tensor<?x2xf32>
  }
  func.return %y : tensor<?x2xf32>
}

// -----

// CHECK: expected a multiple of 16 columns in a tile, got 40
func.func @width(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 1]> : tensor<2xi64> values dense<[1.0, 2.0]> : tensor<2xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>
  %b = pebble.constant dense<[-0.3, 0.5]> : tensor<2xf32>
  %y = pebble.tile %x rows_of [0] schedule <widths = [64]> dead_rows <dropped after [0], tiles of 40> : (tensor<?x2xf32>) -> tensor<?x2xf32> {
  ^bb0(%t: tensor<?x2xf32>):
    %h = pebble.linear %t, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    %z = pebble.linear %h, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    pebble.yield %z : tensor<?x2xf32>
  }
  func.return %y : tensor<?x2xf32>
}

// -----

// CHECK: groups of layers that do not follow each other
func.func @groups(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 1]> : tensor<2xi64> values dense<[1.0, 2.0]> : tensor<2xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>
  %b = pebble.constant dense<[-0.3, 0.5]> : tensor<2xf32>
  %y = pebble.tile %x rows_of [0] schedule <widths = [64]> depth_first <from 64, [<layers 1 to 1, "a", runs dense<[0]> : tensor<1xi64>, order dense<[2, 3]> : tensor<2xi64>, slots dense<[0, 1, 2, 3]> : tensor<4xi64>>, <layers 0 to 0, "b", runs dense<[0]> : tensor<1xi64>, order dense<[2, 3]> : tensor<2xi64>, slots dense<[0, 1, 2, 3]> : tensor<4xi64>>]> : (tensor<?x2xf32>) -> tensor<?x2xf32> {
  ^bb0(%t: tensor<?x2xf32>):
    %h = pebble.linear %t, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    %z = pebble.linear %h, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    pebble.yield %z : tensor<?x2xf32>
  }
  func.return %y : tensor<?x2xf32>
}
