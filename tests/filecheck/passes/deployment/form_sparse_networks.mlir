// RUN: xdsl-opt %s -p 'pebble-sparsify,pebble-form-sparse-networks' --split-input-file | filecheck %s

// What stands before and behind a sparse layer, row by row on the same rows, comes along.
// CHECK-LABEL: @residual
func.func @residual(%x: tensor<?x?x2xf32> {pebble.name = "x", pebble.dims = ["batch", "sequence", "2"]}) -> tensor<?x?x2xf32> {
  %w = pebble.constant dense<[[0.0, 1.0], [0.0, 0.0]]> : tensor<2x2xf32>
  // CHECK: [[Y:%.*]] = pebble.sparse_network %x dims {{\[\[}}"d0", "d1", "2"]] because "1 of 1 weights sparse, 0.250 of the work" {pebble.node = "fc", pebble.values = ["y"]} : (tensor<?x?x2xf32>) -> tensor<?x?x2xf32> {
  // CHECK-NEXT: ^{{.*}}([[A:%.*]]: tensor<?x?x2xf32>):
  // CHECK-NEXT: [[R:%.*]] = pebble.activate <relu> [[A]]
  %r = pebble.activate <relu> %x : (tensor<?x?x2xf32>) -> tensor<?x?x2xf32>
  // CHECK-NEXT: [[H:%.*]] = pebble.linear [[R]], %w
  %h = pebble.linear %r, %w kernel <count_blocks, "why"> {pebble.node = "fc"} : (tensor<?x?x2xf32>, tensor<2x2xf32>) -> tensor<?x?x2xf32>
  // CHECK-NEXT: [[S:%.*]] = pebble.add [[H]], [[A]]
  %y = pebble.add %h, %x {pebble.values = ["y"]} : (tensor<?x?x2xf32>, tensor<?x?x2xf32>) -> tensor<?x?x2xf32>
  // CHECK-NEXT: pebble.yield [[S]]
  // CHECK-NEXT: }
  // CHECK-NEXT: func.return [[Y]]
  func.return %y : tensor<?x?x2xf32>
}

// -----

// A path through an ONNX node that stays: two networks, between which it runs. Its rows are those that it names.
// CHECK-LABEL: @around
func.func @around(%x: tensor<?x2xf32> {pebble.name = "x", pebble.dims = ["batch", "2"]}) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[0.0, 1.0], [0.0, 0.0]]> : tensor<2x2xf32>
  // CHECK: [[H:%.*]] = pebble.sparse_network %x
  %h = pebble.linear %x, %w kernel <count_blocks, "why"> : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  // CHECK: [[C:%.*]] = pebble.foreign "Cos" at 1 reads [[H]]
  %c = pebble.foreign "Cos" at 1 reads %h as ["h"] {pebble.dims = [["batch", ""]]} : (tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: pebble.sparse_network [[C]], [[H]] dims {{\[\[}}"d0", "2"], ["d0", "2"]]
  %k = pebble.linear %c, %w kernel <count_blocks, "why"> : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  // CHECK: pebble.add
  // CHECK-NEXT: pebble.yield
  %y = pebble.add %k, %h : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// Rows that merge on the way stay inside.
// CHECK-LABEL: @merged_rows
func.func @merged_rows(%x: tensor<?x3x2xf32> {pebble.name = "x", pebble.dims = ["batch", "3", "2"]}) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[0.0, 1.0], [0.0, 0.0]]> : tensor<2x2xf32>
  // CHECK: pebble.sparse_network %x dims {{\[\[}}"d0", "3", "2"]]
  // CHECK: pebble.linear
  %h = pebble.linear %x, %w kernel <count_blocks, "why"> : (tensor<?x3x2xf32>, tensor<2x2xf32>) -> tensor<?x3x2xf32>
  // CHECK-NEXT: pebble.reshape
  %f = pebble.reshape %h to <[_, 2]> : (tensor<?x3x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: pebble.linear
  // CHECK-NEXT: pebble.yield
  %y = pebble.linear %f, %w kernel <count_blocks, "why"> : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// Attention between rows of the same samples and lengths joins what is before and behind it; its mask has rows of its
// own, which do not matter.
// CHECK-LABEL: @attention
func.func @attention(%x: tensor<?x?x2xf32> {pebble.name = "x", pebble.dims = ["batch", "length", "2"]}, %m: tensor<?x1x1x?xf32> {pebble.name = "m", pebble.dims = ["batch", "1", "1", "length"]}) -> tensor<?x?x2xf32> {
  %w = pebble.constant dense<[[0.0, 1.0], [0.0, 0.0]]> : tensor<2x2xf32>
  // CHECK: [[Y:%.*]] = pebble.sparse_network %x, %m dims {{\[\[}}"d0", "d1", "2"], ["d0", "1", "1", "d1"]] because "2 of 2 weights sparse
  // CHECK-NEXT: ^{{.*}}([[A:%.*]]: tensor<?x?x2xf32>, [[M:%.*]]: tensor<?x1x1x?xf32>):
  // CHECK-NEXT: [[Q:%.*]] = pebble.linear [[A]], %w
  %q = pebble.linear %x, %w kernel <count_blocks, "why"> : (tensor<?x?x2xf32>, tensor<2x2xf32>) -> tensor<?x?x2xf32>
  // CHECK-NEXT: [[B:%.*]] = pebble.attention [[Q]], [[A]], [[A]] mask [[M]] heads 2 kv_heads 2
  %a = pebble.attention %q, %x, %x mask %m heads 2 kv_heads 2 scale 1.0 : (tensor<?x?x2xf32>, tensor<?x?x2xf32>, tensor<?x?x2xf32>, tensor<?x1x1x?xf32>) -> tensor<?x?x2xf32>
  // CHECK-NEXT: [[L:%.*]] = pebble.linear [[B]], %w
  %y = pebble.linear %a, %w kernel <count_blocks, "why"> : (tensor<?x?x2xf32>, tensor<2x2xf32>) -> tensor<?x?x2xf32>
  // CHECK-NEXT: pebble.yield [[L]]
  func.return %y : tensor<?x?x2xf32>
}
