// RUN: xdsl-opt %s -p 'pebble-share-tiles{threads=2}' --split-input-file | filecheck %s
// RUN: xdsl-opt %s -p 'pebble-share-tiles{threads=1}' --split-input-file | filecheck %s --check-prefix ONE

// A layer that takes long is cut; a tile of one column does not take long enough. One thread cuts nothing.
// CHECK-LABEL: @long
// ONE-LABEL: @long
func.func @long(%x: tensor<?x16xf32>) -> tensor<?x64xf32> {
  %w = pebble.constant dense<1.0> : tensor<16x64xf32>
  // CHECK: schedule <widths = [1, 64], shares = 2, serial [1: 0.2104, 64: 100.7], shared [64: 50.71]>
  // ONE: schedule <widths = [1, 64], serial [1: 0.2104, 64: 100.7]>
  %y = pebble.tile %x rows_of [0] schedule <widths = [1, 64]> : (tensor<?x16xf32>) -> tensor<?x64xf32> {
  ^bb0(%t: tensor<?x16xf32>):
    // CHECK: kernel <count_blocks, predicted [1: 0.2, 64: 100.0], "why"> cut [0, 32, 64]
    // ONE-NOT: cut
    %h = pebble.linear %t, %w kernel <count_blocks, predicted [1: 0.2, 64: 100.0], "why"> : (tensor<?x16xf32>, tensor<16x64xf32>) -> tensor<?x64xf32>
    pebble.yield %h : tensor<?x64xf32>
  }
  func.return %y : tensor<?x64xf32>
}

// -----

// Of rows whose number is known one thread uses some widths alone; several threads split them otherwise.
// CHECK-LABEL: @known
// ONE-LABEL: @known
func.func @known(%x: tensor<3x16xf32>) -> tensor<3x64xf32> {
  %w = pebble.constant dense<1.0> : tensor<16x64xf32>
  // CHECK: schedule <widths = [1, 64], shares = 2,
  // ONE: schedule <widths = [1], serial [1: 0.2104]>
  %y = pebble.tile %x rows_of [0] schedule <widths = [1, 64]> : (tensor<3x16xf32>) -> tensor<3x64xf32> {
  ^bb0(%t: tensor<?x16xf32>):
    %h = pebble.linear %t, %w kernel <count_blocks, predicted [1: 0.2, 64: 100.0], "why"> : (tensor<?x16xf32>, tensor<16x64xf32>) -> tensor<?x64xf32>
    pebble.yield %h : tensor<?x64xf32>
  }
  func.return %y : tensor<3x64xf32>
}

// -----

// Too little work: only the times are noted, by which threads take whole tiles.
// CHECK-LABEL: @short
func.func @short(%x: tensor<?x16xf32>) -> tensor<?x64xf32> {
  %w = pebble.constant dense<1.0> : tensor<16x64xf32>
  // CHECK: schedule <widths = [64], serial [64: 1.079]>
  %y = pebble.tile %x rows_of [0] schedule <widths = [64]> : (tensor<?x16xf32>) -> tensor<?x64xf32> {
  ^bb0(%t: tensor<?x16xf32>):
    // CHECK-NOT: cut
    %h = pebble.linear %t, %w kernel <count_blocks, predicted [64: 0.4], "why"> : (tensor<?x16xf32>, tensor<16x64xf32>) -> tensor<?x64xf32>
    pebble.yield %h : tensor<?x64xf32>
  }
  func.return %y : tensor<?x64xf32>
}
